"""The crawl's NetworkPolicy: its content, the name that follows from it, and what is too much. Pure (law O11).

The crawler judges every address when it connects (law L11); the policy says the same outside of its process, from the
same tables (``crawljob.ranges``). ``policies.isolation`` decides when which one is made and removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from crawljob import ranges
from crawljob.problems import Problem
from crawljob.ranges import Network
from crawljob.spec import CrawlJobSpec
from crawljob_operator import identity, names
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job

Body = dict[str, Any]

_TCP: Final = [{"protocol": "TCP"}]  # all ports: sites may be on any
# In order: the policy's name follows from its text.
_METADATA: Final = tuple(map(ip_network, sorted(map(str, ranges.METADATA))))
# Mapped addresses are never on the wire, and the API server takes none. The others lead to IPv4 through a gateway,
# behind which the policy cannot see.
_GATEWAYS: Final = tuple(network for network in ranges.STAND_FOR_IPV4 if network != ranges.MAPPED)


def policy_spec(job: Job, spec: CrawlJobSpec, settings: NetworkSettings) -> Body:
    """The policy's ``spec``: who may reach this CrawlJob's Pod, and whom it may reach."""
    egress: list[Body] = [settings.dns.rendered()]
    if settings.collector.to:
        egress.append(settings.collector.rendered())
    egress.append({"to": [{"ipBlock": block} for block in blocks(spec.network.ranges)], "ports": _TCP})
    return {
        "podSelector": {"matchLabels": {names.LABEL_UID: job.uid}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": spec.listen.port}]}],
        "egress": egress,
    }


def policy_name(job: Job, spec: CrawlJobSpec, settings: NetworkSettings) -> str:
    """The policy's name, which changes with its content; empty where there shall be none."""
    if not settings.enabled:
        return ""
    content = json.dumps(policy_spec(job, spec, settings), sort_keys=True)
    return identity.child_name(job.name, job.uid, "network", content)


def beyond_limits(spec: CrawlJobSpec, settings: NetworkSettings) -> tuple[Problem, ...]:
    """The ranges that a CrawlJob asks for and that the operator's administrators do not allow it."""
    limits = settings.limits.allow_cidrs
    if not limits:
        return ()
    widest = [ip_network(cidr) for cidr in limits]
    message = f"is not within what this operator allows ({', '.join(limits)})"
    return tuple(
        Problem(f"spec.network.allowCIDRs[{number}]", f"{network} {message}")
        for number, network in enumerate(spec.network.ranges)
        if network not in widest and not any(_is_inside(network, wider) for wider in widest)
    )


def blocks(allowed: Iterable[Network]) -> list[Body]:
    """The ``ipBlock`` of everything that the crawler's guard lets through: global addresses and the allowed ranges.

    Stricter than the guard for addresses that stand for IPv4 ones (NAT64, 6to4, Teredo): those are left out.
    """
    return [*_public(), *(_block(network) for network in dict.fromkeys(allowed))]


@cache
def _public() -> tuple[Body, ...]:
    """Always the same, and every reconcile asks for it."""
    special4 = (network for network, _ in ranges.SPECIAL_IPV4)
    special6 = (network for network, _ in ranges.SPECIAL_IPV6)
    return (_block(IPv4Network("0.0.0.0/0"), special4), _block(ranges.GLOBAL_UNICAST_IPV6, special6))


def _block(network: Network, special: Iterable[Network] = ()) -> Body:
    never = [*special, *_METADATA, *_GATEWAYS]
    inside = [other for other in never if _is_inside(other, network)]
    largest = [other for other in inside if not any(_is_inside(other, wider) for wider in inside)]
    return {"cidr": str(network), **({"except": list(map(str, largest))} if largest else {})}


def _is_inside(inner: Network, outer: Network) -> bool:
    """Whether it is a part, and not all, of the other."""
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner != outer and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner != outer and inner.subnet_of(outer)
