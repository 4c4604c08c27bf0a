"""Which addresses a crawl may connect to: global unicast, and what ``network.allowCIDRs`` opens (law L11). Pure.

Called by ``fetch_connector`` with each address that is about to be dialled. The tables are IANA's special-purpose
registries and not ``ipaddress.is_global``, which passes multicast, NAT64, 6to4 and others, and whose answers differ
between releases of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(*rows: tuple[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(cidr), kind) for cidr, kind in rows)


_METADATA = frozenset(
    {
        IPv4Address("169.254.169.254"),  # AWS, Azure, Google Cloud, OpenStack and most others
        IPv4Address("169.254.170.2"),  # AWS: credentials of containers
        IPv4Address("169.254.170.23"),  # AWS: credentials of Pods
        IPv4Address("169.254.0.23"),  # Tencent Cloud
        IPv4Address("169.254.42.42"),  # Scaleway
        IPv4Address("100.100.100.200"),  # Alibaba Cloud
        IPv4Address("168.63.129.16"),  # Azure's wire server; a global address
        IPv4Address("192.0.0.192"),  # Oracle Cloud
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd00:ec2::23"),  # AWS: credentials of Pods
        IPv6Address("fd20:ce::254"),  # Google Cloud
        IPv6Address("fd00:a9fe:a9fe::1"),  # Linode
        IPv6Address("fd00:42::42"),  # Scaleway
    }
)
"""Services that hand out a machine's credentials: refused in an allowed range too, unless the address is named."""

_IPV4 = _table(
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared with the provider"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a relay of 6to4"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
)
# The first that fits names the address; what is in none of them and not in 2000::/3 is not assigned.
_IPV6 = _table(
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("64:ff9b:1::/48", "NAT64 of a local network"),
    ("100::/64", "discarded"),
    ("2001::/23", "for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")
# Where a NAT64 prefix of 48, 56, 64 or 96 bits has the IPv4 address (RFC 6052 section 2.2; byte 8 is never part of it).
_NAT64_LAYOUTS = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))


def refusal(address: Address, allowed: Sequence[Network] = ()) -> str | None:
    """Why ``address`` may not be connected to; ``None`` where it may.

    An address that carries others (IPv4-mapped or -compatible, NAT64, 6to4, Teredo) is judged by all that it carries.
    """
    for reached in _reached(address):
        kind = _refused(reached, allowed)
        if kind is not None:
            return f"{address} is {kind}" if reached == address else f"{address} stands for {reached}, which is {kind}"
    return None


def _reached(address: Address) -> tuple[Address, ...]:
    """The addresses that a packet to ``address`` ends up at."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return (_embedded(address, _NAT64_LAYOUTS[-1]),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    return (address,)


def _embedded(address: IPv6Address, layout: Iterable[int]) -> IPv4Address:
    return IPv4Address(bytes(address.packed[byte] for byte in layout))


def _refused(address: Address, allowed: Sequence[Network]) -> str | None:
    """What kind of address it is, where that is a reason."""
    ranges = [network for network in allowed if address in network]
    if any(network.prefixlen == network.max_prefixlen for network in ranges):
        return None
    if address in _METADATA or (address in _LOCAL_NAT64 and _leads_to_metadata(address)):
        return "a cloud's metadata service"
    return None if ranges else _kind(address)


def _leads_to_metadata(address: Address) -> bool:
    """Whether an address of a local NAT64 stands for a metadata service under any prefix that it may have."""
    return isinstance(address, IPv6Address) and any(
        _embedded(address, layout) in _METADATA for layout in _NAT64_LAYOUTS
    )


def _kind(address: Address) -> str | None:
    special = _IPV4 if isinstance(address, IPv4Address) else _IPV6
    for network, kind in special:
        if address in network:
            return f"{kind} ({network})"
    return None if isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST else "not assigned"
