"""What a crawl brings along to be let in: header values and certificates, read once from files before it starts.

Called by the command line. The only one that reads the values; ``fetch`` puts them on the wire. They are in no error,
no log, no ``repr``, no span and no table.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from crawljob.access import KeyRef
from crawljob.problems import InvalidInputError, Problem
from crawljob.spec import Fetch
from crawljob_telemetry.credentials import Credentials
from durable_crawler.addresses import Network, refusal
from durable_crawler.urls import authority, origin

CA_MAX_BYTES = 1024 * 1024
"""Of a file of certificates: what a Secret or a ConfigMap can hold."""

VALUE_MAX_BYTES = 8192
"""Of a header's value: more than servers take of a whole line."""


@dataclass(frozen=True, slots=True)
class OriginHeaders:
    """Headers by the one origin that each is for."""

    by_origin: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def of(self, url: str) -> Mapping[str, str]:
        """What goes along with a request for the canonical ``url``; asked anew for each hop of a redirect."""
        return self.by_origin.get(origin(url), {}) if self.by_origin else {}


@dataclass(frozen=True, slots=True)
class Access:
    """All of it."""

    headers: OriginHeaders = field(default_factory=OriginHeaders)
    tls: ssl.SSLContext | None = None
    """Trusts more than the system's authorities; ``None`` where those are enough."""
    telemetry: Credentials = field(default_factory=Credentials)
    """For the collector, which is no site: ``access_telemetry`` reads it."""


def read(
    fetch: Fetch, *, allowed: Sequence[Network] = (), secret_dir: Path | None = None, ca_bundle: Path | None = None
) -> Access:
    """Read what ``fetch`` names. Raises ``InvalidInputError`` with all problems; no message holds a value.

    A proxy at an address that may not be connected to is a problem, too, where the address is known by now.
    """
    problems: list[Problem] = []
    if fetch.proxy is not None and (reason := _refused(fetch.proxy.url, allowed)):
        problems.append(Problem("spec.fetch.proxy.url", f"{reason}; network.allowCIDRs opens a range"))
    headers = _headers(fetch, secret_dir, problems)
    tls = _trusting(fetch, ca_bundle, problems)
    if problems:
        raise InvalidInputError(problems)
    return Access(headers, tls)


def _headers(fetch: Fetch, folder: Path | None, problems: list[Problem]) -> OriginHeaders:
    if folder is None:
        if fetch.headers:
            problems.append(
                Problem("spec.fetch.headers", "the values are read from files: name their folder with --secret-dir DIR")
            )
        return OriginHeaders()
    found: dict[str, dict[str, str]] = {}
    for number, header in enumerate(fetch.headers):
        try:
            found.setdefault(header.origin, {})[header.name] = value(header.value_from.secret_key_ref, folder)
        except ValueError as error:
            problems.append(Problem(f"spec.fetch.headers[{number}].valueFrom.secretKeyRef", str(error)))
    return OriginHeaders(found)


def _refused(proxy: str, allowed: Sequence[Network]) -> str | None:
    """Why an address in a proxy's URL may not be connected to; what a name leads to is judged when it is dialled."""
    host = authority(f"{proxy}/")
    with suppress(ValueError):
        return refusal(ip_address(host[1 : host.index("]")] if host[0] == "[" else host.partition(":")[0]), allowed)
    return None


def value(source: KeyRef, folder: Path) -> str:
    """A header's value. Raises ``ValueError`` with what is wrong with its file, which is all that may be told."""
    path = folder / source.name / source.key
    raw = content(path, VALUE_MAX_BYTES).removesuffix(b"\n")  # editors and `echo` leave one
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in text):
        raise ValueError(f"{path} has a control character or a second line, which no header may have")
    return text


def _trusting(fetch: Fetch, path: Path | None, problems: list[Problem]) -> ssl.SSLContext | None:
    """The client's context with the certificates of a file besides the system's."""
    if path is None:
        if fetch.ca_bundle is not None:
            problem = "the certificates are read from a file: name it with --ca-bundle FILE"
            problems.append(Problem("spec.fetch.caBundle", problem))
        return None
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    try:
        certificates(context, path)
    except ValueError as error:
        problems.append(Problem("--ca-bundle", str(error)))
    return context


def certificates(context: ssl.SSLContext, path: Path) -> None:
    """Let ``context`` trust a file's certificates. Raises ``ValueError`` with what is wrong with it."""
    # Text between certificates is a comment in any language.
    text = content(path, CA_MAX_BYTES).decode("ascii", "replace").replace("\ufffd", "?")
    try:
        context.load_verify_locations(cadata=text or "\n")
    except ssl.SSLError:
        raise ValueError(f"{path} does not hold PEM certificates, or not whole ones") from None


def content(path: Path, limit: int) -> bytes:
    """A file's bytes. Raises ``ValueError`` when it cannot be read or is longer than ``limit``."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 2)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    if len(raw.removesuffix(b"\n")) > limit:
        raise ValueError(f"{path} has more than {limit} bytes")
    return raw
