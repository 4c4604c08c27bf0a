"""Which addresses are global unicast, and which are special: one table for the crawler's guard and the NetworkPolicy.

Used by ``durable_crawler.addresses`` (law L11), ``crawljob_operator.network`` (law O11) and the spec's own validation.
The tables are IANA's special-purpose registries and not ``ipaddress.is_global``, which passes multicast, NAT64, 6to4
and others, and whose answers differ between releases of Python.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(*rows: tuple[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(cidr), kind) for cidr, kind in rows)


METADATA: Final[frozenset[Address]] = frozenset(
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

SPECIAL_IPV4: Final = _table(
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
"""The first that fits names the address; what is in none of them is global."""

SPECIAL_IPV6: Final = _table(
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
"""The first that fits names the address; what is in none of them and not in ``GLOBAL_UNICAST_IPV6`` is not assigned."""

GLOBAL_UNICAST_IPV6: Final = IPv6Network("2000::/3")

COMPATIBLE: Final = IPv6Network("::/96")
MAPPED: Final = IPv6Network("::ffff:0:0/96")
NAT64: Final = IPv6Network("64:ff9b::/96")
TEREDO: Final = IPv6Network("2001::/32")
SIX_TO_FOUR: Final = IPv6Network("2002::/16")

STAND_FOR_IPV4: Final = (COMPATIBLE, MAPPED, NAT64, TEREDO, SIX_TO_FOUR)
"""IPv6 ranges whose addresses stand for IPv4 ones, by which the crawler judges them."""
