"""Which addresses a crawl may connect to (law L11)."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_crawler.addresses import refusal


def _words(text: str) -> list[str]:
    return text.split()


REFUSED = _words("""
0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.1 127.255.255.255 169.254.0.1 172.16.0.1
172.31.255.255 192.0.0.1 192.0.0.9 192.0.2.1 192.88.99.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1
203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192
:: ::1 ::2 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
64:ff9b::127.0.0.1 64:ff9b::a00:5 64:ff9b::a9fe:a9fe 64:ff9b:1::1 64:ff9b:1::808:808 64:ff9b:2::1
100::1 100:0:0:1::1 2001::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 3fff::1 3fff:fff::1
2002:7f00:1:: 2002:a9fe:a9fe:: 2002:c0a8:101::1 4000::1 5f00::1 1fff::1 8000::1
2001:0:7f00:1:0:0:f7f7:f7f7 2001:0:808:808:0:0:80ff:fefe 2001:0:a00:1:0:0:f7f7:f7f7
fc00::1 fdff::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%eth0 febf::1 fec0::1 feff::1 ff02::1 ff0e::1
""")

ALLOWED = _words("""
1.1.1.1 9.255.255.255 11.0.0.0 93.184.215.14 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255
169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.1 192.0.3.0 192.88.98.1 192.167.255.255 192.169.0.0 198.17.255.255
198.20.0.0 203.0.112.255 203.0.114.0 223.255.255.255
2000::1 2001:200::1 2001:4860:4860::8888 2606:4700::1111 2620:4f:8000::1 2a00:1450::1 3ffe::1 3fff:1000::1
::ffff:93.184.215.14 64:ff9b::808:808 2002:808:808::1 2001:0:808:808:0:0:f7f7:f7f7
""")


def reason(address: str, *allowed: str) -> str | None:
    return refusal(ip_address(address), [ip_network(cidr) for cidr in allowed])


@pytest.mark.parametrize("address", REFUSED)
def test_refused(address: str) -> None:
    assert (reason(address) or "").startswith(f"{ip_address(address)} ")


@pytest.mark.parametrize("address", ALLOWED)
def test_global_unicast(address: str) -> None:
    assert reason(address) is None


def test_the_reason_names_what_was_reached_and_why() -> None:
    assert reason("10.1.2.3") == "10.1.2.3 is private (10.0.0.0/8)"
    assert reason("64:ff9b::7f00:1") == "64:ff9b::7f00:1 stands for 127.0.0.1, which is loopback (127.0.0.0/8)"
    assert reason("5f00::1") == "5f00::1 is not assigned"
    assert (
        reason("fd00:ec2::254")
        == "fd00:ec2::254 is a cloud's metadata service (only its own address opens it, as a /32 or /128)"
    )


@pytest.mark.parametrize(
    ("address", "ranges"),
    [
        ("127.0.0.1", ["127.0.0.0/8"]),
        ("::1", ["::1/128"]),
        ("fd00::1", ["10.0.0.0/8", "fd00::/8"]),
        ("224.0.0.1", ["0.0.0.0/0"]),
        ("::ffff:10.0.0.5", ["10.0.0.0/8"]),
        ("64:ff9b::a00:5", ["10.0.0.0/8"]),
        ("2002:a00:5::1", ["10.0.0.0/8"]),
        ("2001:0:a00:1:0:0:f5ff:fffe", ["10.0.0.0/8"]),
        ("64:ff9b:1::a00:5", ["64:ff9b:1::/48"]),
        ("169.254.169.254", ["169.254.169.254/32"]),
        ("::ffff:169.254.169.254", ["169.254.0.0/16", "169.254.169.254/32"]),
        ("64:ff9b::a9fe:a9fe", ["169.254.169.254/32"]),
        ("fd00:ec2::254", ["fd00:ec2::254/128"]),
        ("168.63.129.16", ["168.63.129.16/32"]),
    ],
)
def test_a_range_that_is_allowed(address: str, ranges: list[str]) -> None:
    assert reason(address) is not None
    assert reason(address, *ranges) is None


@pytest.mark.parametrize(
    ("address", "ranges"),
    [
        ("10.0.0.1", ["10.0.0.0/32", "fd00::/8"]),
        ("169.254.169.254", ["169.254.0.0/16", "169.254.169.254/31", "0.0.0.0/0"]),
        ("100.100.100.200", ["100.64.0.0/10"]),
        ("168.63.129.16", ["168.63.0.0/16"]),
        ("fd00:ec2::254", ["fd00::/8", "::/0"]),
        ("::ffff:169.254.169.254", ["0.0.0.0/0", "::/0"]),
        ("64:ff9b::a9fe:a9fe", ["0.0.0.0/0", "::/0"]),
        ("64:ff9b::7f00:1", ["::/0"]),  # it is IPv4 that it leads to
        ("2002:7f00:1::", ["2002::/16"]),
        ("2001:0:a00:1:0:0:f5ff:fffd", ["10.0.0.0/31"]),  # the server is in it, the client is not
        ("64:ff9b:1:a9fe:a9:fe00::", ["64:ff9b:1::/48"]),  # the metadata address behind a prefix of 48 bits
        ("64:ff9b:1:fe:a9:fea9:fe00:0", ["::/0"]),
        ("64:ff9b:1::a9fe:a9fe", ["64:ff9b:1::/48"]),
    ],
)
def test_a_range_that_does_not_open_it(address: str, ranges: list[str]) -> None:
    assert reason(address, *ranges) is not None


@given(st.ip_addresses(v=4))
def test_whatever_carries_an_ipv4_address_is_judged_by_it(address: IPv4Address) -> None:
    high, low = divmod(int(address), 1 << 16)
    alone = refusal(address) is None
    spellings = [f"::ffff:{high:x}:{low:x}", f"64:ff9b::{high:x}:{low:x}", f"2002:{high:x}:{low:x}::1"]
    if int(address) > 1:
        spellings.append(f"::{high:x}:{low:x}")
    assert [reason(spelling) is None for spelling in spellings] == [alone] * len(spellings)


@given(st.ip_addresses(v=4))
def test_what_the_standard_library_knows_to_be_special_is_refused(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert refusal(address) is not None


def test_every_spelling_that_the_resolver_takes_of_loopback() -> None:
    """Sixty spellings: whatever a name server or a URL says, it is the socket's address that is judged."""
    numbers = ["127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0177.1", "2130706433", "0x7f000001", "017700000001", "0"]
    numbers += [f"127.{n}.{n}.{n}" for n in range(1, 40)]
    numbers += [f"::ffff:127.0.0.{n}" for n in range(1, 7)] + ["::1", "0:0:0:0:0:0:0:1", "::ffff:7f00:1", "localhost"]
    numbers += ["::", "0.0.0.0"]
    assert len(numbers) == 60
    for spelling in numbers:
        for *_, address in socket.getaddrinfo(spelling, 80, type=socket.SOCK_STREAM):
            assert reason(str(address[0])) is not None, spelling
