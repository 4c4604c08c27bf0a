"""A real nginx on loopback that counts: who serves a site to crawlers, and says afterwards what each asked for.

Each authority is an address of 127.0.0.0/8 at one port, with a folder of its own. The log is the judge of a run: it
knows which pages were got, how often, and when the first and the last answer was given.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.toolchain import debian

from benchmarks.collector import answers

START_LIMIT_SECONDS = 10
_FLUSH_SECONDS = 1.2  # nginx writes what it has buffered once a second, and has no event for it
_CONFIG = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
user root;
events {{ worker_connections 2048; }}
http {{
  types {{
    text/html html htm; text/plain txt; text/css css; text/javascript js; application/json json;
    image/png png; image/svg+xml svg; font/woff2 woff2; font/woff woff; text/xml xml;
  }}
  default_type application/octet-stream;
  log_format line '$msec $request_method $status $server_addr:$server_port$request_uri $sent_http_content_type';
  access_log {folder}/access.log line buffer=64k flush=1s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  sendfile on;
{servers}
}}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of the log."""

    at: float
    """Seconds since 1970 when the answer had been sent, to the millisecond."""
    method: str
    status: int
    url: str
    html: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What one crawl asked for."""

    pages: frozenset[str]
    """URLs that were answered with an HTML page, by GET and 200."""
    again: int
    """GET requests for such a page beyond the first."""
    requests: int
    """All of them: robots.txt, other files, HEAD, redirects, errors."""
    first: float
    last: float
    """Times of the first and the last answer; both 0 where there was none."""


def install() -> None:
    """Raises ``Unavailable`` where nginx cannot be had."""
    if shutil.which("nginx") is None:
        debian.packages("nginx-light")


class Nginx:
    """``with Nginx(folder, roots, port) as nginx``."""

    def __init__(self, folder: Path, roots: Mapping[str, Path], port: int) -> None:
        self._folder = folder
        self._roots = roots
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        servers = "\n".join(
            f"  server {{ listen {address}:{self._port}; root {root}; }}" for address, root in self._roots.items()
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o755)
        config = self._folder / "nginx.conf"
        config.write_text(_CONFIG.format(folder=self._folder, servers=servers))
        self._process = subprocess.Popen(  # noqa: S603 - nothing in it comes from outside
            [shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(self._folder), "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not answers(next(iter(self._roots)), self._port):
            if self._process.poll() is not None or time.monotonic() > limit:
                self.__exit__(None, None, None)
                raise RuntimeError(f"nginx did not start: {self._said()}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)

    def forget(self) -> None:
        """Count anew from here, the late lines of what was asked before left out."""
        time.sleep(_FLUSH_SECONDS)
        self._log.write_text("")

    def seen(self) -> Seen:
        """What was asked for since the last ``forget``."""
        time.sleep(_FLUSH_SECONDS)
        return seen(answer(line) for line in self._log.read_text().splitlines())

    @property
    def _log(self) -> Path:
        return self._folder / "access.log"

    def _said(self) -> str:
        log = self._folder / "error.log"
        return log.read_text()[-500:] if log.exists() else "it left no log"


def answer(line: str) -> Answer:
    """Read a line of the log. Raises ``ValueError`` for one that is none."""
    at, method, status, url, kind = line.split(" ", 4)
    return Answer(float(at), method, int(status), f"http://{url}", kind.startswith("text/html"))


def seen(answers: Iterable[Answer]) -> Seen:
    """Add up a log."""
    lines = list(answers)
    got = Counter(line.url for line in lines if line.html and line.status == 200 and line.method == "GET")
    return Seen(
        pages=frozenset(got),
        again=got.total() - len(got),
        requests=len(lines),
        first=min((line.at for line in lines), default=0.0),
        last=max((line.at for line in lines), default=0.0),
    )
