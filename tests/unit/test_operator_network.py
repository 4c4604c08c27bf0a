"""The crawl's NetworkPolicy: it lets through what the crawler's own guard does, and it is the only one of its Pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.builders import NOW, UID, around, crawljob, ended, job, running

from crawljob import ranges, spec
from crawljob.problems import InvalidInputError
from crawljob.ranges import Address, Network
from crawljob_operator import names, netsettings, network, render
from crawljob_operator.actions import CreatePod, CreatePolicy, DeletePolicy
from crawljob_operator.cli import main
from crawljob_operator.conditions import find
from crawljob_operator.decide import decide
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job, Note, Policy, Refusal, Seen
from crawljob_operator.reconcile import read_job
from durable_crawler.addresses import refusal

LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
EDGES: list[Address] = [
    edge
    for network in (*(row[0] for row in (*ranges.SPECIAL_IPV4, *ranges.SPECIAL_IPV6)), *ranges.STAND_FOR_IPV4)
    for edge in (network[0], network[-1])
]
EDGES += sorted(ranges.METADATA, key=str)


def shifted(address: Address, by: int) -> Address:
    """The address beside it, as far as there is one."""
    last = 2**address.max_prefixlen - 1
    return type(address)(min(max(int(address) + by, 0), last))


def around_address(address: Address, length: int) -> Network:
    """A range with this address in it."""
    return ip_network(f"{address}/{min(length, address.max_prefixlen)}", strict=False)


def is_valid(network: Network) -> bool:
    """Whether a CrawlJob may have this range: not those that stand for IPv4 addresses."""
    try:
        spec.Network(allow_cidrs=(str(network),))
    except ValidationError:
        return False
    return True


ipv4 = st.integers(0, 2**32 - 1).map(IPv4Address)
ipv6 = st.integers(0, 2**128 - 1).map(IPv6Address)
near = st.builds(shifted, st.sampled_from(EDGES), st.integers(-2, 2))
addresses = st.one_of(ipv4, ipv6, near, st.integers(0, 2**125 - 1).map(lambda n: IPv6Address(2**125 + n)))
allowed_ranges = st.lists(
    st.builds(around_address, st.one_of(near, ipv4, ipv6), st.integers(0, 128)).filter(is_valid), max_size=3
)


def lets_through(address: Address, allowed: Sequence[Network]) -> bool:
    """What a network makes of the blocks: one must have the address, and not except it."""
    return any(
        address in ip_network(block["cidr"])
        and not any(address in ip_network(other) for other in block.get("except", ()))
        for block in network.blocks(allowed)
    )


@given(addresses, allowed_ranges)
@example(ip_address("169.254.169.254"), [IPv4Network("169.254.0.0/16")])
@example(ip_address("169.254.169.254"), [IPv4Network("169.254.0.0/16"), IPv4Network("169.254.169.254/32")])
@example(ip_address("168.63.129.16"), [])
@example(ip_address("2002:a00:5::1"), [IPv6Network("2000::/3")])
@example(ip_address("64:ff9b::a00:5"), [IPv6Network("::/0")])
def test_what_the_policy_lets_through_the_guard_does_too(address: Address, allowed: list[Network]) -> None:
    """But for a local NAT64, whose metadata services no range describes, and for addresses that are never on a wire."""
    if lets_through(address, allowed) and address not in LOCAL_NAT64 and address not in ranges.MAPPED:
        assert refusal(address, allowed) is None


@given(addresses, allowed_ranges)
@example(ip_address("93.184.215.14"), [])
@example(ip_address("2606:4700::1111"), [])
@example(ip_address("fd00:ec2::254"), [IPv6Network("fd00:ec2::254/128")])
def test_what_the_guard_lets_through_the_policy_does_too(address: Address, allowed: list[Network]) -> None:
    """But for addresses that stand for IPv4 ones, which lead through a gateway."""
    if refusal(address, allowed) is None and not any(address in other for other in ranges.STAND_FOR_IPV4):
        assert lets_through(address, allowed)


@given(allowed_ranges)
def test_the_api_server_takes_every_block(allowed: list[Network]) -> None:
    """It wants exceptions that are parts of their range and not all of it, and no IPv4-mapped ones."""
    for block in network.blocks(allowed):
        whole = ip_network(block["cidr"])
        for other in map(ip_network, block.get("except", ())):
            assert other.version == whole.version
            assert int(whole[0]) <= int(other[0]) <= int(other[-1]) <= int(whole[-1])
            assert other != whole
            assert other != ranges.MAPPED


def rendered(owner: Job, settings: NetworkSettings | None = None) -> dict[str, Any]:
    assert owner.spec is not None
    return render.policy(owner, owner.spec, settings or NetworkSettings())


def test_it_selects_this_jobs_pods_and_no_others() -> None:
    owner = job(listen={"port": 9191})
    policy = rendered(owner)
    assert policy["metadata"]["ownerReferences"][0]["uid"] == owner.uid
    assert policy["spec"]["podSelector"] == {"matchLabels": {names.LABEL_UID: owner.uid}}
    assert owner.spec is not None
    assert render.pod(owner, owner.spec, 1, "image")["metadata"]["labels"][names.LABEL_UID] == owner.uid
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 9191}]}]


def test_dns_is_open_by_port_and_the_collector_only_where_the_chart_says() -> None:
    dns = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    first, *others = rendered(job())["spec"]["egress"]
    assert first == dns
    (addresses,) = others
    assert addresses["ports"] == [{"protocol": "TCP"}]
    assert {"ipBlock"} == {key for peer in addresses["to"] for key in peer}

    collector = {"to": [{"podSelector": {}}], "ports": [{"port": 4317, "endPort": 4318}]}
    settings = netsettings.parse(json.dumps({"collector": collector}))
    assert rendered(job(), settings)["spec"]["egress"] == [dns, collector, addresses]

    only_ports = netsettings.parse('{"collector": {"ports": [{"port": 4317}]}}')
    assert rendered(job(), only_ports)["spec"]["egress"] == [dns, addresses], (
        "a rule without peers would open it to all"
    )


def test_allowed_ranges_stand_as_they_are() -> None:
    egress = rendered(job(network={"allowCIDRs": ["192.168.77.0/24", "fd00::/64"]}))["spec"]["egress"]
    assert [peer["ipBlock"] for peer in egress[-1]["to"][2:]] == [{"cidr": "192.168.77.0/24"}, {"cidr": "fd00::/64"}]


def test_its_name_is_that_of_its_content() -> None:
    """So that an edit makes another one, and nothing else does."""
    other = netsettings.parse('{"dns": {"ports": [{"port": 5353}]}}')

    def name(settings: NetworkSettings | None = None, **spec: Any) -> str:
        return str(rendered(job(**spec), settings)["metadata"]["name"])

    assert name() == name(fetch={"workers": 3})
    assert len({name(), name(network={"allowCIDRs": ["10.0.0.0/8"]}), name(listen={"port": 9191}), name(other)}) == 4
    owner = job()
    assert owner.spec is not None
    assert network.policy_name(owner, owner.spec, NetworkSettings(enabled=False)) == ""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("[]", "networkPolicy: "),
        ("{", "networkPolicy: "),
        ('{"limits": {"allowCIDRs": ["10.0.0.1/8"]}}', "networkPolicy.limits.allowCIDRs[0]: must be a range"),
        ('{"enable": true}', "networkPolicy.enable: unknown field"),
        ('{"enabled": "yes"}', "networkPolicy.enabled: must be true or false"),
        ('{"dns": {"ports": []}}', "networkPolicy: dns must have ports"),
        ('{"dns": {"to": [{}]}}', "networkPolicy.dns.to[0]: must have either an ipBlock, or"),
        (
            '{"dns": {"to": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}}',
            "networkPolicy.dns.to[0].ipBlock.cidr: must be a range",
        ),
        (
            '{"collector": {"to": [{"podSelector": {"matchLabels": {"app": 1}}}]}}',
            "networkPolicy.collector.to[0].podSelector.matchLabels.app: must be a string",
        ),
        ('{"collector": {"ports": [{"port": 70000}]}}', "networkPolicy.collector.ports[0].port: must be a number"),
        ('{"dns": {"ports": [{"port": "53"}]}}', "networkPolicy.dns.ports[0].port: must be a number from"),
        (
            '{"collector": {"ports": [{"port": "otlp--grpc"}]}}',
            "networkPolicy.collector.ports[0].port: must be a number",
        ),
        ('{"collector": {"ports": [{"port": 2, "endPort": 1}]}}', "networkPolicy.collector.ports[0]: endPort needs"),
    ],
)
def test_a_mistake_in_the_peers_is_named(settings: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        netsettings.parse(settings)
    assert str(refused.value).startswith(problem)
    environment = {names.ENV_NETWORK_POLICY: settings, names.ENV_CRAWLER_IMAGE: "crawler"}
    told = CliRunner().invoke(main, env=environment)
    assert told.exit_code == 2
    assert problem in told.output
    assert names.FLAG_NETWORK_POLICY in told.output


def test_a_range_beyond_the_limits_is_refused_by_its_path() -> None:
    """Whole and part are within; wider, beside and of the other family are not. Without limits all are."""
    limited = netsettings.parse('{"enabled": false, "limits": {"allowCIDRs": ["10.20.0.0/16", "fd00:20::/32"]}}')
    within, beyond = ["10.20.0.0/16", "10.20.30.0/24", "fd00:20:1::/48"], ["10.0.0.0/8", "10.21.0.0/16", "::/0"]
    raw = crawljob("docs", network={"allowCIDRs": [*within, *beyond]})
    raw["metadata"]["uid"] = UID
    assert read_job(raw).problems == ()
    read = read_job(raw, limited)
    assert [problem.path for problem in read.problems] == [f"spec.network.allowCIDRs[{number}]" for number in (3, 4, 5)]
    stalled = find(decide(read, Seen(), NOW).status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "InvalidSpec"
    told = "spec.network.allowCIDRs[3]: 10.0.0.0/8 is not within what this operator allows (10.20.0.0/16, fd00:20::/32)"
    assert told in stalled.message
    raw["spec"]["network"] = {"allowCIDRs": within}
    assert read_job(raw, limited).spec is not None


def test_the_only_policy_is_there_before_the_pod() -> None:
    """An older one, which may be wider, goes first: policies add up."""
    owner = job()
    seen = around(owner, policies=(Policy("old", "1", owner.uid), Policy("theirs", "2", "x")), policy_name="new")
    assert decide(owner, seen, NOW).actions == (DeletePolicy("old", "1"), CreatePolicy(), CreatePod(1))
    there = replace(seen, policies=(Policy("new", "3", owner.uid),))
    assert decide(owner, there, NOW).actions == (CreatePod(1),)


def test_without_policies_those_of_before_go_with_the_next_pod() -> None:
    owner = job()
    seen = around(owner, running(owner), policies=(Policy("old", "1", owner.uid),))
    assert decide(owner, seen, NOW).actions == ()
    assert decide(owner, replace(seen, pod=None), NOW).actions == (DeletePolicy("old", "1"), CreatePod(1))


def test_a_pods_policy_stays_as_it_is_and_comes_back() -> None:
    """Other peers wait for the next Pod; a policy that somebody has removed does not."""
    owner = job()
    seen = around(owner, running(owner), policies=(Policy("old", "1", owner.uid),), policy_name="new")
    assert decide(owner, seen, NOW).actions == ()
    bare = replace(seen, policies=())
    assert decide(owner, bare, NOW).actions == (CreatePolicy(),)
    refused = Refusal(Note("AdmissionRejected"), NOW + timedelta(seconds=10))
    assert decide(owner, replace(bare, refusal=refused), NOW).actions == ()
    assert decide(owner, replace(bare, refusal=refused), NOW + timedelta(seconds=10)).actions == (CreatePolicy(),)
    taken = replace(bare, policies=(Policy("new", "2", "somebody"),))
    assert decide(owner, taken, NOW).actions == ()
    assert decide(owner, replace(bare, pod=ended(owner, 1)), NOW).actions == ()


@pytest.mark.parametrize(
    ("seen", "why", "recheck"),
    [
        ({"refusal": Refusal(Note("QuotaExceeded", "exceeded quota"), NOW + timedelta(seconds=9))}, "quota", 9),
        ({"policies": (Policy("new", "2", "somebody"),)}, "new belongs to somebody else", 30),
    ],
    ids=["refused", "taken"],
)
def test_a_pod_whose_policy_does_not_come_back_is_said(seen: dict[str, Any], why: str, recheck: int) -> None:
    """It goes on crawling; its condition says so for as long, an Event once, and it is looked at again."""
    owner = job()
    bare = around(owner, running(owner), policy_name="new", **seen)
    plain = decide(owner, around(owner, running(owner)), NOW)
    decision = decide(owner, bare, NOW)
    ready, before = find(decision.status.conditions, "Ready"), find(plain.status.conditions, "Ready")
    assert ready is not None
    assert before is not None
    assert (ready.status, ready.reason) == (before.status, before.reason)
    assert ready.message.startswith(f"{before.message} The Pod has no NetworkPolicy: ")
    assert why in ready.message
    assert [said.note.reason for said in decision.announcements if said.warning] == ["NotIsolated"]
    assert decision.recheck_at == NOW + timedelta(seconds=recheck)
    known = replace(owner, status=decision.status)
    again = decide(known, bare, NOW + timedelta(seconds=recheck))
    assert (again.status, again.announcements) == (decision.status, ())
    healed = decide(known, replace(bare, policies=(Policy("new", "3", owner.uid),)), NOW)
    assert find(healed.status.conditions, "Ready") == before


@pytest.mark.parametrize("alive", [True, False], ids=["running", "no Pod yet"])
def test_a_policy_that_somebody_has_edited_is_made_again(*, alive: bool) -> None:
    """Its name says what it was made as. One that waits for the next Pod cannot be: nobody knows what was in it."""
    owner = job()
    edited = Policy("new", "1", owner.uid, edited=True)
    seen = around(owner, running(owner) if alive else None, policies=(edited,), policy_name="new")
    after = () if alive else (CreatePod(1),)
    assert decide(owner, seen, NOW).actions == (DeletePolicy("new", "1"), CreatePolicy(), *after)
    mended = replace(seen, policies=(replace(edited, edited=False),))
    assert decide(owner, mended, NOW).actions == after
    theirs = replace(seen, policies=(replace(edited, owner_uid="somebody"),))
    assert decide(owner, theirs, NOW).actions == ()
    old = replace(seen, policies=(replace(edited, name="old"),))
    assert decide(owner, old, NOW).actions == (() if alive else (DeletePolicy("old", "1"), CreatePolicy(), *after))


def test_a_foreign_policy_of_that_name_is_left_alone() -> None:
    owner = job()
    seen = around(owner, policies=(Policy("new", "2", "somebody"),), policy_name="new")
    decision = decide(owner, seen, NOW)
    assert decision.actions == ()
    stalled = find(decision.status.conditions, "Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "PolicyConflict")
    assert "new" in stalled.message
    assert Seen().policies == ()
