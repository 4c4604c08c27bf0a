"""The part of ``fetch`` that lets a crawl into private sites: headers for an origin, certificates, a proxy.

Nothing here holds a secret: values are named by Secret and key, and come as files (``durable_crawler.access``).
"""

from __future__ import annotations

from typing import Annotated, Self

import ada_url
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from crawljob.model import Model, cel

MAX_HEADERS = 32

_ORIGIN_MESSAGE = "must be an origin such as https://docs.example.org: lower case, no path, no default port"

OWN_NAMES = (
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
)
"""Fields that the crawler sends itself, or that would change how a message is framed or what an answer means."""
OWN_PREFIXES = ("if-", "proxy-")
_NAME_MESSAGE = "must not be a header that the crawler sends itself, or that frames or qualifies a request"


def _origin(given: str) -> str:
    try:
        url = ada_url.URL(given)
    except ValueError:
        raise ValueError(_ORIGIN_MESSAGE) from None
    if url.username or url.password:
        raise ValueError("must not contain credentials")
    if url.protocol not in ("http:", "https:"):
        raise ValueError(_ORIGIN_MESSAGE)
    if given != url.origin:
        raise ValueError(f"must be written as the origin that it is, {url.origin}")
    return given


def _sendable(name: str) -> str:
    lower = name.lower()
    if lower in OWN_NAMES or lower.startswith(OWN_PREFIXES):
        raise ValueError(_NAME_MESSAGE)
    return name


# Both are patterns of the schema, which cost the API server less than CEL, and CEL for what no pattern says.
Origin = Annotated[
    str,
    Field(
        min_length=8,
        max_length=300,
        json_schema_extra={
            "pattern": r"^https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?$",
            **cel(
                "!(self.startsWith('http://') ? self.endsWith(':80') : self.endsWith(':443'))"
                " && isURL(self) && url(self).getHostname() != ''",
                _ORIGIN_MESSAGE,
            ),
        },
    ),
    AfterValidator(_origin),
]

FieldName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
        json_schema_extra=cel(
            f"!(self.lowerAscii() in {list(OWN_NAMES)!r})"
            + "".join(f" && !self.lowerAscii().startsWith({prefix!r})" for prefix in OWN_PREFIXES),
            _NAME_MESSAGE,
        ),
    ),
    AfterValidator(_sendable),
]

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
# The key is a file's name in the crawler's Pod: neither . nor .. nor what the kubelet keeps for itself.
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\.?[-_A-Za-z0-9][-._A-Za-z0-9]*$")]


class KeyRef(Model):
    """One key of a Secret or a ConfigMap in the CrawlJob's namespace."""

    name: ObjectName = Field(description="Name of the object, in the CrawlJob's own namespace.")
    key: DataKey = Field(description="Key in its data.")


class HeaderSource(Model):
    """Where a header's value comes from."""

    secret_key_ref: KeyRef = Field(
        description="A key of a Secret, read once when the crawler starts. Outside a cluster it is the file "
        "SECRET/KEY in the folder that --secret-dir names."
    )


class Header(Model):
    """A header for the requests of one origin."""

    origin: Origin = Field(
        description="Scheme, host and port that the header is sent to, robots.txt included, and to nothing else: not "
        "to http where this says https, and not behind a redirect elsewhere. Its host must be that of a seed; together "
        "with fetch.proxy it must be https, or the proxy would read the value."
    )
    name: FieldName = Field(
        description="The header's name, such as Authorization; not one of those that the crawler sends itself."
    )
    value_from: HeaderSource = Field(description="Where the value comes from; it is never logged or stored.")


def _distinct(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    if len({(header.origin, header.name.lower()) for header in headers}) < len(headers):
        raise ValueError(_DISTINCT_MESSAGE)
    return headers


_DISTINCT_MESSAGE = "must name each header of an origin once"

Headers = Annotated[
    tuple[Header, ...],
    Field(
        max_length=MAX_HEADERS,
        json_schema_extra=cel(
            "self.all(a, self.exists_one(b, b.origin == a.origin && b.name.lowerAscii() == a.name.lowerAscii()))",
            _DISTINCT_MESSAGE,
        ),
    ),
    AfterValidator(_distinct),
]


def authority(origin: str) -> str:
    """The authority that an origin or a valid seed is on: its host, and its port unless it is the scheme's own."""
    return str(ada_url.URL(origin).host)


_ONE_SOURCE = "must have exactly one of secretKeyRef and configMapKeyRef"


class CaBundle(Model):
    """Certificates of authorities of one's own."""

    model_config = ConfigDict(json_schema_extra=cel("has(self.secretKeyRef) != has(self.configMapKeyRef)", _ONE_SOURCE))

    secret_key_ref: KeyRef | None = Field(None, description="A key of a Secret that holds PEM certificates.")
    config_map_key_ref: KeyRef | None = Field(None, description="A key of a ConfigMap that holds PEM certificates.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            raise ValueError(_ONE_SOURCE)
        return self


_PROXY_MESSAGE = "must be an http URL such as http://proxy.example.org:3128, without credentials and path"
_PROMISE_MESSAGE = (
    "proxyFiltersAddresses must be true: behind a proxy nobody here sees which address a name leads to, so the proxy "
    "itself must refuse private ones"
)


def _proxy_url(given: str) -> str:
    try:
        url = ada_url.URL(given)
    except ValueError:
        raise ValueError(_PROXY_MESSAGE) from None
    if url.username or url.password:
        raise ValueError("must not contain credentials")
    if url.protocol != "http:" or not url.hostname or url.href != f"{url.origin}/":
        raise ValueError(_PROXY_MESSAGE)
    return given


ProxyUrl = Annotated[
    str,
    Field(
        min_length=8,
        max_length=300,
        json_schema_extra={
            "pattern": r"^[Hh][Tt][Tt][Pp]://[^/?#@\\\s]+/?$",
            **cel("isURL(self) && url(self).getHostname() != ''", _PROXY_MESSAGE),
        },
    ),
    AfterValidator(_proxy_url),
]


class Proxy(Model):
    """A proxy that all requests go through."""

    model_config = ConfigDict(json_schema_extra=cel("self.proxyFiltersAddresses", _PROMISE_MESSAGE))

    url: ProxyUrl = Field(
        description="An http proxy, port 80 without another; https goes through it by CONNECT, verified end to end. "
        "Its own address must be public or in network.allowCIDRs, like every other that is connected to."
    )
    proxy_filters_addresses: bool = Field(
        False,
        description="Your word that the proxy refuses private addresses. It resolves the names, so the crawler can "
        "only judge addresses that stand in a URL; without this word there is no proxy.",
    )

    @model_validator(mode="after")
    def _promised(self) -> Self:
        if not self.proxy_filters_addresses:
            raise ValueError(_PROMISE_MESSAGE)
        return self
