"""The part of the spec that says where traces and metrics are sent, and how the collector lets them in.

Like ``crawljob.access`` it holds no secret: values and keys are named by Secret, and come as files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import ada_url
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from crawljob.access import MAX_HEADERS, OWN_NAMES, OWN_PREFIXES, CaBundle, HeaderSource, ObjectName
from crawljob.model import Model, cel
from crawljob.webaddress import web_address

CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"
"""The keys of a Secret of the type kubernetes.io/tls."""

_PREFIXES = (*OWN_PREFIXES, "grpc-")
_NAME_MESSAGE = "must not be a header that the exporter sends itself, or that frames a request, nor end with -bin"


def _sendable(name: str) -> str:
    lower = name.lower()
    if lower in OWN_NAMES or lower.startswith(_PREFIXES) or lower.endswith("-bin"):  # -bin: gRPC's binary values
        raise ValueError(_NAME_MESSAGE)
    return name


# Of a header's name only what is one over gRPC, too.
MetadataName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        pattern=r"^[0-9A-Za-z_.-]+$",
        json_schema_extra=cel(
            f"!(self.lowerAscii() in {list(OWN_NAMES)!r})"
            + "".join(f" && !self.lowerAscii().startsWith({prefix!r})" for prefix in _PREFIXES)
            + " && !self.lowerAscii().endsWith('-bin')",
            _NAME_MESSAGE,
        ),
    ),
    AfterValidator(_sendable),
]


class TelemetryHeader(Model):
    """A header (over gRPC: metadata) of every export."""

    name: MetadataName = Field(description="The header's name, such as Authorization.")
    value_from: HeaderSource = Field(description="Where the value comes from; it is never logged.")


def _distinct(headers: tuple[TelemetryHeader, ...]) -> tuple[TelemetryHeader, ...]:
    if len({header.name.lower() for header in headers}) < len(headers):
        raise ValueError(_DISTINCT_MESSAGE)
    return headers


_DISTINCT_MESSAGE = "must name each header once"

TelemetryHeaders = Annotated[
    tuple[TelemetryHeader, ...],
    Field(
        max_length=MAX_HEADERS,
        json_schema_extra=cel(
            "self.all(a, self.exists_one(b, b.name.lowerAscii() == a.name.lowerAscii()))", _DISTINCT_MESSAGE
        ),
    ),
    AfterValidator(_distinct),
]


class ClientCertificate(Model):
    """What the collector knows this crawl by."""

    secret_name: ObjectName = Field(
        description="A Secret of the type kubernetes.io/tls in the CrawlJob's own namespace: a certificate in tls.crt, "
        "its key in tls.key. Outside a cluster they are files in SECRET of the folder that --secret-dir names."
    )


_SOMETHING = "must have ca, clientCertificate, or both"


class Tls(Model):
    """How the connection to the collector is secured. It is always verified."""

    model_config = ConfigDict(json_schema_extra=cel("has(self.ca) || has(self.clientCertificate)", _SOMETHING))

    ca: CaBundle | None = Field(
        None,
        description="PEM certificates of authorities that are trusted instead of the system's. Outside a cluster it is "
        "the file that --telemetry-ca names.",
    )
    client_certificate: ClientCertificate | None = Field(
        None, description="A certificate to be shown to a collector that asks for one."
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.ca is None and self.client_certificate is None:
            raise ValueError(_SOMETHING)
        return self


def _endpoint(given: str) -> str:
    web_address(given)
    return given


Endpoint = Annotated[
    str,
    Field(
        min_length=8,
        max_length=1024,
        json_schema_extra=cel(
            "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
            "must be an http or https URL such as http://otel-collector:4317",
        ),
    ),
    AfterValidator(_endpoint),
]

_TLS_MESSAGE = "tls needs an https endpoint"
_HEADERS_MESSAGE = "headers need an endpoint: they are for the collector that you name, and for no other"

_RULES: dict[str, Any] = {
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.tls) || (has(self.endpoint) && isURL(self.endpoint)"
            " && url(self.endpoint).getScheme() == 'https')",
            "message": _TLS_MESSAGE,
        },
        {"rule": "!has(self.headers) || size(self.headers) == 0 || has(self.endpoint)", "message": _HEADERS_MESSAGE},
    ]
}


class Telemetry(Model):
    """Where traces and metrics are sent."""

    model_config = ConfigDict(json_schema_extra=_RULES)

    endpoint: Endpoint | None = Field(
        None,
        description="OTLP endpoint, an http or https URL such as http://otel-collector:4317. Without it that of the "
        "environment (OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL), which in a cluster is the "
        "operator's own; where there is none either nothing is sent. /metrics is always there.",
    )
    protocol: Literal["grpc", "http/protobuf"] = Field("grpc", description="OTLP's transport to that endpoint.")
    headers: TelemetryHeaders = Field(
        (), description="Headers for the collector, with values from Secrets; they need an endpoint."
    )
    tls: Tls | None = Field(None, description="Certificates for an https endpoint.")
    traces_sample_ratio: float = Field(
        0.01,
        ge=0,
        le=1,
        strict=False,
        description="Share of URLs that are traced, chosen by a hash of the URL; failed ones always are.",
    )

    @model_validator(mode="after")
    def _for_somebody(self) -> Self:
        if self.tls is not None and (self.endpoint is None or ada_url.URL(self.endpoint).protocol != "https:"):
            raise ValueError(_TLS_MESSAGE)
        if self.headers and self.endpoint is None:
            raise ValueError(_HEADERS_MESSAGE)
        return self
