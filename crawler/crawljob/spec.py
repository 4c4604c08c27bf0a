"""The CrawlJob's spec: every field once, with its bounds, its default and what it means.

The CRD's schema, the reference table, the command line's flags and the file in the Pod are derived from these models
(``crawljob.crd``, ``crawljob.manifest``). Parts of it are in ``scope``, ``access`` (what lets a crawl into private
sites), ``results``, ``telemetry``, ``storage``, ``lifecycle`` and ``pod_template``. A field is here only when something
obeys it. ``cel`` in a field's extra schema says to the API server what the validators say to everybody else; both are
tested with the same rows.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Literal, Self

import ada_url
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from crawljob import __version__
from crawljob.access import CaBundle, Headers, Proxy, authority
from crawljob.lifecycle import Backoff, PodFailurePolicy, RestartPolicy
from crawljob.model import Model, cel
from crawljob.patterns import UrlPatterns
from crawljob.pod_template import PodTemplate, Resources
from crawljob.ranges import STAND_FOR_IPV4
from crawljob.results import Audit, Results
from crawljob.scope import Scope
from crawljob.storage import DEFAULT_STORAGE_SIZE, Storage
from crawljob.telemetry import Telemetry
from crawljob.units import DurationWithin, quantity, seconds
from crawljob.webaddress import web_address

SEEDS_MAX_BYTES = 200 * 1024  # a client-side `kubectl apply` keeps the object in an annotation of at most 256 KiB

DEFAULT_USER_AGENT = f"durable-crawler/{__version__} (+https://durable-crawler.io/about)"


_SEED_RULE = "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''"
# CEL's url() hides credentials, and its string functions over all seeds exceed the API server's cost budget; a pattern
# of the schema costs nothing there.
_SEED_PATTERN = r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\\\s]+([/?#].*)?$"
_SEED_MESSAGE = "must be an absolute http or https URL without credentials"

Seed = Annotated[
    str,
    Field(
        min_length=8,
        max_length=1024,
        json_schema_extra={"pattern": _SEED_PATTERN, **cel(_SEED_RULE, _SEED_MESSAGE)},
    ),
    AfterValidator(web_address),
]


_OWN = IPv6Network("::/127")  # unspecified and loopback, which stand for nothing


def _network(cidr: str) -> str:
    try:
        network = ip_network(cidr)
    except ValueError as error:
        hint = "; its host bits must be zero" if "host bits" in str(error) else ""
        raise ValueError(f"must be a range such as 10.0.0.0/8 or fd00::/8{hint}") from None
    if isinstance(network, IPv6Network) and _stands_for_ipv4(network):
        raise ValueError("stands for IPv4 addresses; name their range, such as 10.0.0.0/8")
    return cidr


def _stands_for_ipv4(network: IPv6Network) -> bool:
    # Such addresses are judged by the IPv4 ones: to allow some of them would allow nothing.
    return not network.subnet_of(_OWN) and any(network.subnet_of(other) for other in STAND_FOR_IPV4)


# By a regular expression: CEL's own isCIDR and isIP are not in every Kubernetes that we promise, and to compare ranges
# exceeds the budget of some that have them. What an expression cannot say, such as host bits, the validators do.
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}([.]{_OCTET}){{3}}"
_IPV6 = "[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"

Cidr = Annotated[
    str,
    Field(
        min_length=4,
        max_length=43,
        pattern=r"^[0-9A-Fa-f:.]+/(0|[1-9][0-9]{0,2})$",
        json_schema_extra=cel(
            f"self.matches('^({_IPV4}/(3[0-2]|[12]?[0-9])|{_IPV6}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$')",
            "must be a range such as 10.0.0.0/8 or fd00::/8",
        ),
    ),
    AfterValidator(_network),
]


class Fetch(Model):
    """How pages are requested."""

    workers: int = Field(16, ge=1, le=1024, description="Pages being worked on at once, over all hosts.")
    per_host: int = Field(2, ge=1, le=256, description="Pages being worked on at once of one authority.")
    retries: int = Field(
        3,
        ge=0,
        le=20,
        description="Retries after a first attempt that failed in a way that may pass: "
        "408, 425, 429, 500, 502, 503, 504, connection errors and timeouts.",
    )
    connect_timeout: Annotated[str, DurationWithin("10ms", "5m")] = Field(
        "3s", description="DNS and TCP, one connection attempt."
    )
    tls_timeout: Annotated[str, DurationWithin("10ms", "5m")] = Field("5s", description="The TLS handshake.")
    header_timeout: Annotated[str, DurationWithin("10ms", "10m")] = Field(
        "8s", description="From the request to the response's header."
    )
    total_timeout: Annotated[str, DurationWithin("10ms", "1h")] = Field(
        "15s", description="One attempt, from its start to the last byte of the body."
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        le=256 * 1024 * 1024,
        description="Bytes of a decoded body; a page that is larger is recorded as too large and not parsed.",
    )
    user_agent: str = Field(
        DEFAULT_USER_AGENT,
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z_-]+(/[!-~]+)?( [ -~]*)?$",
        description="The User-Agent header. It begins with a product token (letters, _ and -), and should say "
        "where the owner of a site finds out more.",
    )
    headers: Headers = Field(
        (), description="Headers for single origins, with values from Secrets: how a crawl gets into a private site."
    )
    ca_bundle: CaBundle | None = Field(
        None,
        description="PEM certificates of authorities that are trusted besides the system's; TLS is always verified. "
        "Outside a cluster it is the file that --ca-bundle names.",
    )
    proxy: Proxy | None = Field(
        None,
        description="A proxy that all requests go through; the environment's proxies never are. While it cannot be "
        "reached the crawl waits for it, without end unless activeDeadlineSeconds says otherwise.",
    )


class Network(Model):
    """Where the crawl may connect to."""

    allow_cidrs: tuple[Cidr, ...] = Field(
        (),
        alias="allowCIDRs",
        max_length=100,
        description="Ranges that may be connected to although they are not public: private, loopback, documentation "
        "and all other addresses that are not global unicast are refused, whatever name, literal or redirect leads "
        "there. A cloud's metadata address is refused in a wider range too, unless it is named (/32, /128).",
    )

    @property
    def ranges(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """``allow_cidrs`` as networks."""
        return tuple(map(ip_network, self.allow_cidrs))


class Politeness(Model):
    """What the owners of sites are owed."""

    robots: Literal["obey", "ignore"] = Field(
        "obey", description="Whether robots.txt is obeyed (RFC 9309); ignore is for sites of your own."
    )
    delay: Annotated[str, DurationWithin("0s", "1h")] = Field(
        "0s", description="Least time between the starts of two pages of one authority."
    )
    max_crawl_delay: Annotated[str, DurationWithin("0s", "1h")] = Field(
        "60s", description="The longest Crawl-delay of a robots.txt that is obeyed; a longer one is cut to this."
    )
    max_retry_after: Annotated[str, DurationWithin("0s", "24h")] = Field(
        "30s", description="The longest Retry-After that is obeyed; a longer one is cut to this."
    )


def _address(address: str) -> str:
    try:
        ip_address(address)
    except ValueError:
        raise ValueError("must be an IP address such as 127.0.0.1 or ::1") from None
    return address


class Listen(Model):
    """Where /healthz, /readyz, /metrics and /progress are served."""

    address: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1",
        max_length=64,
        pattern=r"^[0-9A-Fa-f:.]+$",
        json_schema_extra=cel(f"self.matches('^({_IPV4}|{_IPV6})$')", "must be an IP address such as 127.0.0.1 or ::1"),
        description="IP address to listen on; in a Pod the operator makes it 0.0.0.0 unless it is given.",
    )
    port: int = Field(
        9090, ge=1, le=65535, description="TCP port. The page about the crawl has the next one, on loopback."
    )


class CrawlJobSpec(Model):
    """A bounded, polite crawl of the sites that its seeds name."""

    seeds: tuple[Seed, ...] = Field(
        min_length=1,
        max_length=1000,
        description="Absolute http or https URLs. Each approves its one exact authority (host and non-default port; "
        "http and https of one host are one authority).",
    )
    scope: Scope = Field(default_factory=Scope, description="Which pages belong to the crawl.")
    fetch: Fetch = Field(default_factory=Fetch, description="How pages are requested.")
    network: Network = Field(default_factory=Network, description="Where the crawl may connect to.")
    politeness: Politeness = Field(default_factory=Politeness, description="What the owners of sites are owed.")
    listen: Listen = Field(default_factory=Listen, description="Where health, metrics and progress are served.")
    image: str | None = Field(
        None, min_length=1, max_length=512, description="The crawler's image; the operator's own without it."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When the kubelet pulls the image; Kubernetes' own rule without it."
    )
    storage: Storage = Field(
        default_factory=Storage, json_schema_extra={"default": {}}, description="The volume of the frontier."
    )
    restart_policy: RestartPolicy = Field(
        default_factory=RestartPolicy, description="What happens when the Pod ends before the crawl does."
    )
    pod_failure_policy: PodFailurePolicy = Field(
        default_factory=PodFailurePolicy, description="Which ends of a Pod are failures, in the shape of batch/v1."
    )
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Seconds that the crawler may run, all its Pods together; waits and suspension do not count. "
        "Then the job is Failed.",
    )
    start_deadline_seconds: int = Field(
        900,
        ge=0,
        le=2**31 - 1,
        description="Seconds from the making of a Pod until its crawler runs (scheduling, volume, image); then the job "
        "is Failed. 0 waits for ever.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        alias="ttlSecondsAfterFinished",
        ge=0,
        le=2**31 - 1,
        description="Seconds after which a finished CrawlJob is deleted, and with it its volume unless that is "
        "retained; never without it. What applies it again from Git crawls again.",
    )
    restart_requested_at: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Any text, such as the time; another one than status.observedRestartRequest restarts the crawl "
        "once, also a finished one. Pages that failed or were quarantined are then tried again, and "
        "activeDeadlineSeconds begins anew.",
    )
    suspend: bool = Field(False, description="Stops the crawl gracefully and keeps its volume; false resumes it.")
    results: Results = Field(default_factory=Results, description="What is stored of the pages.")
    audit: Audit = Field(default_factory=Audit, description="What is verified besides the pages themselves.")
    telemetry: Telemetry = Field(default_factory=Telemetry, description="Where traces and metrics are sent.")
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="What may be said about the crawler's Pod."
    )

    @model_validator(mode="after")
    def _seeds_fit(self) -> Self:
        size = sum(len(seed.encode()) for seed in self.seeds)
        if size > SEEDS_MAX_BYTES:
            raise ValueError(f"seeds have {size} bytes together; at most {SEEDS_MAX_BYTES} are allowed")
        return self

    @model_validator(mode="after")
    def _no_seed_is_excluded(self) -> Self:
        """A seed asks for what ``exclude`` forbids: one of them is a mistake, and nobody but the author knows which."""
        exclude = UrlPatterns(exclude=self.scope.exclude)
        rulings = [exclude.ruling(ada_url.URL(seed).href.partition("#")[0]) for seed in self.seeds if exclude]
        self._refuse(
            [
                (("seeds", number), f"is excluded by {ruling.pattern} of scope.exclude")
                for number, ruling in enumerate(rulings)
                if not ruling.admitted
            ]
        )
        return self

    @model_validator(mode="after")
    def _headers_get_there_and_nowhere_else(self) -> Self:
        """Not in CEL: 1000 seeds against 32 headers are beyond its cost budget."""
        approved = {authority(seed) for seed in self.seeds} if self.fetch.headers else set()
        problems: list[tuple[tuple[str | int, ...], str]] = []
        for number, header in enumerate(self.fetch.headers):
            where = ("fetch", "headers", number, "origin")
            if authority(header.origin) not in approved:
                problems.append((where, "is on no seed's host: the crawl would never go there"))
            if self.fetch.proxy is not None and header.origin.startswith("http:"):
                problems.append((where, "is http: fetch.proxy would read the value; use https, or no proxy"))
        self._refuse(problems)
        return self

    def _refuse(self, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        """Raise for what only a look at several fields shows, under the path of the field that must change."""
        if problems:
            errors = [
                InitErrorDetails(
                    type=PydanticCustomError("contradiction", "{what}", {"what": what}), loc=where, input=None
                )
                for where, what in problems
            ]
            raise ValidationError.from_exception_data(type(self).__name__, errors)


__all__ = [
    "DEFAULT_STORAGE_SIZE",
    "DEFAULT_USER_AGENT",
    "Audit",
    "Backoff",
    "CrawlJobSpec",
    "Fetch",
    "Listen",
    "Network",
    "PodTemplate",
    "Politeness",
    "Resources",
    "RestartPolicy",
    "Results",
    "Scope",
    "Storage",
    "Telemetry",
    "quantity",
    "seconds",
]
