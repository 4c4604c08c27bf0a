"""What a cluster must tell the operator for its NetworkPolicies: who answers DNS, where the collector is, and limits.

The chart hands over its ``networkPolicy`` values as they are (``cli``); ``network`` renders policies from them. The
peers are those of ``networking.k8s.io/v1``, checked here so that a mistake is told at the start and not by each crawl.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from crawljob.problems import InvalidInputError, from_validation


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    def rendered(self) -> dict[str, Any]:
        """As the API server gets it: what was given, and no defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _network(cidr: str) -> str:
    try:
        return str(ip_network(cidr))
    except ValueError:
        raise ValueError("must be a range such as 10.0.0.0/8 or fd00::/8, its host bits zero") from None


Cidr = Annotated[str, AfterValidator(_network)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]


_PORT_NAME = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")


def _port(given: object) -> int | str:
    """As the API server takes it, which would refuse every crawl's policy otherwise."""
    if isinstance(given, str) and _PORT_NAME.fullmatch(given):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 65535:
        return given
    raise ValueError(
        "must be a number from 1 to 65535, or a name of at most 15 of a-z, 0-9 and -, one of them a letter"
    )


PortOrName = Annotated[int | str, PlainValidator(_port)]


class Requirement(_Model):
    """One of a selector's ``matchExpressions``."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(_Model):
    """A label selector; an empty one selects all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class IPBlock(_Model):
    """A range of addresses, without some inside it."""

    cidr: Cidr
    except_: tuple[Cidr, ...] = Field((), alias="except")


class Peer(_Model):
    """Somebody to connect to: addresses, or Pods by their labels and those of their namespaces."""

    ip_block: IPBlock | None = Field(None, alias="ipBlock")
    namespace_selector: Selector | None = None
    pod_selector: Selector | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        by_labels = self.namespace_selector is not None or self.pod_selector is not None
        if by_labels == (self.ip_block is not None):
            raise ValueError("must have either an ipBlock, or a namespaceSelector or podSelector or both")
        return self


class Port(_Model):
    """A port by number or by the container port's name, or all from ``port`` to ``endPort``."""

    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    port: PortOrName
    end_port: PortNumber | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_port is not None and (isinstance(self.port, str) or self.end_port < self.port):
            raise ValueError("endPort needs a port that is a number and not above it")
        return self


class Rule(_Model):
    """Egress: to these peers, at these ports (none: all)."""

    to: tuple[Peer, ...] = ()
    ports: tuple[Port, ...] = ()


DNS = Rule(ports=(Port(protocol="UDP", port=53), Port(protocol="TCP", port=53)))
"""By port, whoever answers: NodeLocal DNSCache (169.254.20.10) and some clouds' DNS are in ranges otherwise refused."""


class Limits(_Model):
    """What a CrawlJob may ask for."""

    allow_cidrs: tuple[Cidr, ...] = Field((), alias="allowCIDRs")
    """Ranges within which all of a CrawlJob's ``network.allowCIDRs`` must lie; without any, all are allowed."""


class NetworkSettings(_Model):
    """The chart's ``networkPolicy``."""

    enabled: bool = True
    dns: Rule = DNS
    """Without peers it is everybody, at these ports; it must have ports."""
    collector: Rule = Rule()
    """Without peers it is nobody."""
    limits: Limits = Limits()
    """They hold without policies too."""

    @model_validator(mode="after")
    def _dns_is_bounded(self) -> Self:
        if not self.dns.ports:
            raise ValueError("dns must have ports: without any, it would open all of them")
        return self


def parse(text: str) -> NetworkSettings:
    """Read the settings from JSON. Raises ``InvalidInputError`` with every problem."""
    try:
        return NetworkSettings.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInputError(from_validation(error, "networkPolicy")) from None
