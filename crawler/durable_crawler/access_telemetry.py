"""Where this run's telemetry goes and what lets it in: the spec, the environment, and files read before it starts.

Called by the command line. Values are in no error, no log and no ``repr``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crawljob.problems import InvalidInputError, Problem
from crawljob.telemetry import CERTIFICATE_KEY, PRIVATE_KEY, Telemetry
from crawljob_telemetry.credentials import Credentials
from durable_crawler.access import CA_MAX_BYTES, certificates, content, value

ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
"""OpenTelemetry's own variables, for a spec that names no endpoint."""


def addressed(telemetry: Telemetry, environ: Mapping[str, str]) -> Telemetry:
    """The spec's telemetry, with the environment's collector where it names none. Raises ``InvalidInputError``."""
    endpoint = environ.get(ENDPOINT, "").strip()
    if telemetry.endpoint is not None or not endpoint:
        return telemetry
    given: dict[str, Any] = {"endpoint": endpoint, "protocol": environ.get(PROTOCOL, "").strip() or telemetry.protocol}
    try:
        return Telemetry(**given, traces_sample_ratio=telemetry.traces_sample_ratio)
    except ValidationError as error:
        said = {problem["loc"][0]: problem["msg"].removeprefix("Value error, ") for problem in error.errors()}
        problems = [Problem(ENDPOINT, said["endpoint"])] if "endpoint" in said else []
        problems += [Problem(PROTOCOL, "must be grpc or http/protobuf")] if "protocol" in said else []
        raise InvalidInputError(problems) from None


def read(telemetry: Telemetry, *, secret_dir: Path | None = None, ca: Path | None = None) -> Credentials:
    """Read what ``telemetry`` names. Raises ``InvalidInputError`` with all problems; no message holds a value."""
    problems: list[Problem] = []
    client = None if telemetry.tls is None else telemetry.tls.client_certificate
    if secret_dir is None and (telemetry.headers or client):
        where = "spec.telemetry.headers" if telemetry.headers else "spec.telemetry.tls.clientCertificate"
        problems.append(Problem(where, "Secrets are read from files: name their folder with --secret-dir DIR"))
    if ca is None and telemetry.tls is not None and telemetry.tls.ca is not None:
        problem = "the certificates are read from a file: name it with --telemetry-ca FILE"
        problems.append(Problem("spec.telemetry.tls.ca", problem))
    headers: dict[str, str] = {}
    certificate = key = None
    if secret_dir is not None:
        headers = _headers(telemetry, secret_dir, problems)
    if secret_dir is not None and client is not None:
        certificate, key = (secret_dir / client.secret_name / name for name in (CERTIFICATE_KEY, PRIVATE_KEY))
        try:
            _check_pair(certificate, key)
        except ValueError as error:
            problems.append(Problem("spec.telemetry.tls.clientCertificate", str(error)))
    if ca is not None:
        try:
            certificates(ssl.create_default_context(), ca)
        except ValueError as error:
            problems.append(Problem("--telemetry-ca", str(error)))
    if problems:
        raise InvalidInputError(problems)
    return Credentials(headers, ca, certificate, key)


def _headers(telemetry: Telemetry, folder: Path, problems: list[Problem]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, header in enumerate(telemetry.headers):
        source = header.value_from.secret_key_ref
        try:
            text = value(source, folder)
            if not text.isascii() or text != text.strip():
                path = folder / source.name / source.key
                raise ValueError(f"{path} has more than ASCII text, or spaces around it, which gRPC does not send")
            found[header.name.lower()] = text
        except ValueError as error:
            problems.append(Problem(f"spec.telemetry.headers[{number}].valueFrom.secretKeyRef", str(error)))
    return found


def _check_pair(certificate: Path, key: Path) -> None:
    """Raises ``ValueError`` with what is wrong with the files."""
    for path in (certificate, key):
        content(path, CA_MAX_BYTES)
    try:
        # A key that wants a password must not ask a terminal for it.
        ssl.create_default_context().load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError):
        raise ValueError(f"{certificate} and {key} are not a PEM certificate and its key without a password") from None
