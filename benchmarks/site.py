"""A site to measure with: made from a seed, the same on every machine, served by a real nginx on loopback.

Each host is an address of 127.0.0.0/8 at one port, with numbered pages of one size. A page links to the pages after it,
so that every page is found, and to others at random, one in ten of them on any host. Around its links it has the markup
of a page of documentation: sections with headings, and paragraphs with code and emphasis.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_SECONDS = 10
_NEXT = 3  # how many of a page's links lead to the pages after it
_ELSEWHERE = 0.1  # the share of the others that lead to any host
_CONFIG = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
user root;
events {{ worker_connections 2048; }}
http {{
  types {{ text/html html; text/plain txt; }}
  log_format line '$msec $server_addr $request_uri $status';
  access_log {folder}/access.log line buffer=64k flush=1s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  sendfile on;
{servers}
}}
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the site is: pages per host, links and bytes per page."""

    hosts: int = 4
    pages: int = 1000
    links: int = 30
    size: int = 10_000
    seed: int = 1


class NginxMissingError(Exception):
    """There is no nginx on PATH."""


class Site:
    """``with Site(shape, folder) as site``: the site is made and served until the block ends."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.shape = shape
        self._folder = folder
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.write()
        self._serve()
        return self

    def write(self) -> None:
        """Make the files, a folder for each host, and serve nothing."""
        for host in range(self.shape.hosts):
            root = self._folder / f"h{host}"
            root.mkdir(parents=True)
            (root / "robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
            for page in range(self.shape.pages):
                (root / f"p{page}.html").write_text(self._page(host, page))

    @property
    def roots(self) -> dict[str, Path]:
        """The folder of each address."""
        return {_address(host): self._folder / f"h{host}" for host in range(self.shape.hosts)}

    @property
    def port(self) -> int:
        """The port of every host; it stands in the links from one to another."""
        return self._port

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)

    @property
    def seeds(self) -> list[str]:
        """The first page of each host."""
        return [self.url(host, 0) for host in range(self.shape.hosts)]

    @property
    def urls(self) -> set[str]:
        """Every page."""
        return {self.url(host, page) for host in range(self.shape.hosts) for page in range(self.shape.pages)}

    def url(self, host: int, page: int) -> str:
        """The URL of a page."""
        return f"http://{_address(host)}:{self._port}/p{page}.html"

    def asked(self) -> Counter[str]:
        """How often each URL was asked for since the last ``forget``, as nginx has it; robots.txt included."""
        return Counter(f"http://{address}:{self._port}{path}" for _, address, path, _ in self._lines())

    def seconds(self) -> float:
        """From the first answer to the last since the last ``forget``."""
        times = [float(time) for time, *_ in self._lines()]
        return max(times) - min(times)

    def _lines(self) -> list[list[str]]:
        time.sleep(1.2)  # nginx writes what it has buffered once a second, and has no event for it
        return [line.split() for line in (self._folder / "access.log").read_text().splitlines()]

    def forget(self) -> None:
        """Count anew."""
        (self._folder / "access.log").write_text("")

    def _page(self, host: int, page: int) -> str:
        chance = random.Random(f"{self.shape.seed}/{host}/{page}")  # noqa: S311 - a site, not a secret
        after = [(host, (page + step) % self.shape.pages) for step in range(1, _NEXT + 1)]
        others = [
            (
                chance.randrange(self.shape.hosts) if chance.random() < _ELSEWHERE else host,
                chance.randrange(self.shape.pages),
            )
            for _ in range(self.shape.links - _NEXT)
        ]
        links = "".join(
            f'<li><a class="internal" href="{self._href(host, target)}">page {target[1]} of host {target[0]}</a>\n'
            for target in after + others
        )
        title = f"{host}/{page}"
        head = "<meta charset=utf-8>\n<meta name=viewport content='width=device-width'>"
        text = [
            f"<!doctype html>\n<html lang=en><head>{head}<title>{title}</title></head>\n<body><main>",
            f"<h1>{title}</h1>\n<nav><ul>\n{links}</ul></nav>\n",
        ]
        number = 0
        while (left := self.shape.size - sum(map(len, text))) > _LARGEST_SECTION:
            number += 1
            text.append(_section(chance, number))
        filling = " ".join(chance.choices(_WORDS, k=left // 4))
        return "".join(text) + f"<p>{filling}"[: left - len(_END)] + _END

    def _href(self, host: int, target: tuple[int, int]) -> str:
        return f"/p{target[1]}.html" if target[0] == host else self.url(*target)

    def _serve(self) -> None:
        program = shutil.which("nginx")
        if program is None:
            raise NginxMissingError("nginx is not on PATH; install it (Debian: apt install nginx-light)")
        servers = "\n".join(
            f"  server {{ listen {_address(host)}:{self._port}; root {self._folder}/h{host}; }}"
            for host in range(self.shape.hosts)
        )
        config = self._folder / "nginx.conf"
        config.write_text(_CONFIG.format(folder=self._folder, servers=servers))
        self._folder.chmod(0o755)
        self._process = subprocess.Popen(  # noqa: S603 - nothing in it comes from outside
            [program, "-p", str(self._folder), "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not _answers(_address(0), self._port):
            if self._process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"nginx did not start: {(self._folder / 'error.log').read_text()[-500:]}")
            time.sleep(0.05)


_END = "</p></main></body></html>\n"
_LARGEST_SECTION = 1100


def _section(chance: random.Random, number: int) -> str:
    """A heading and two paragraphs, of whose words every eighth is code or emphasised."""

    def words(count: int) -> str:
        chosen = chance.choices(_WORDS, k=count)
        for at in range(3, count, 8):
            tag = "em" if chance.random() < 1 / 4 else "code"
            chosen[at] = f'<{tag} class="literal">{chosen[at]}</{tag}>'
        return " ".join(chosen)

    heading = " ".join(chance.choices(_WORDS, k=3))
    paragraphs = "".join(f"<p>{words(40)}.</p>\n" for _ in range(2))
    return f'<section id="part-{number}">\n<h2>{heading}</h2>\n{paragraphs}</section>\n'


_WORDS = ("claim", "fetch", "parse", "settle", "record", "finish", "lease", "token", "frontier", "page", "link", "host")


def _address(host: int) -> str:
    return f"127.0.{host // 250 + 1}.{host % 250 + 1}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, port)) == 0
