"""Which addresses a crawl may connect to: global unicast, and what ``network.allowCIDRs`` opens (law L11). Pure.

Called by ``fetch_connector`` with each address that is about to be dialled. The tables are those of
``crawljob.ranges``, which the operator's NetworkPolicy is made of as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from crawljob.ranges import (
    COMPATIBLE,
    GLOBAL_UNICAST_IPV6,
    METADATA,
    NAT64,
    SPECIAL_IPV4,
    SPECIAL_IPV6,
    Address,
    Network,
)

__all__ = ["Address", "Network", "refusal"]

_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
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
    if address in NAT64 or (address in COMPATIBLE and int(address) > 1):
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
    if address in METADATA or (address in _LOCAL_NAT64 and _leads_to_metadata(address)):
        return "a cloud's metadata service (only its own address opens it, as a /32 or /128)"
    return None if ranges else _kind(address)


def _leads_to_metadata(address: Address) -> bool:
    """Whether an address of a local NAT64 stands for a metadata service under any prefix that it may have."""
    return isinstance(address, IPv6Address) and any(_embedded(address, layout) in METADATA for layout in _NAT64_LAYOUTS)


def _kind(address: Address) -> str | None:
    special = SPECIAL_IPV4 if isinstance(address, IPv4Address) else SPECIAL_IPV6
    for network, kind in special:
        if address in network:
            return f"{kind} ({network})"
    return None if isinstance(address, IPv4Address) or address in GLOBAL_UNICAST_IPV6 else "not assigned"
