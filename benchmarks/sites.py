"""The sites that crawlers are measured on: one made from a seed, and two real sets of documentation from Debian.

Which pages a set of documentation has is found without HTTP and without a crawler: by walking its files from the
first page along the links that stand in them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import ada_url
from selectolax.lexbor import LexborHTMLParser
from tests.support.toolchain import cache, debian

from benchmarks.collector import free_port
from benchmarks.nginx import Nginx
from benchmarks.site import Shape, Site

DOCUMENTATION = {
    "python3-doc": ("python3.11-doc", "usr/share/doc/python3.11/html"),
    "rust-doc": ("rust-doc", "usr/share/doc/rust-doc/html"),
}
SITES = ("synthetic", *DOCUMENTATION)
_ADDRESS = "127.0.1.1"
_ORIGIN = "http://site.invalid"  # while the files are walked; nothing is asked there


@dataclass(frozen=True, slots=True)
class Served:
    """A site that is being served, and how it is to be crawled."""

    name: str
    nginx: Nginx
    seeds: tuple[str, ...]
    hosts: tuple[str, ...]
    """Authorities, each an address and the port."""
    pages: frozenset[str]
    """The URL of every HTML page that can be reached from the seeds."""
    per_host: int
    """Requests at once to each host; 16 to all of them."""


def fetch(name: str) -> None:
    """Have what of a site is not made on the spot. Raises ``Unavailable`` where its package cannot be had."""
    if name in DOCUMENTATION:
        _known(name, _root(name))


def _root(name: str) -> Path:
    package, folder = DOCUMENTATION[name]
    return debian.unpacked(package) / folder


@contextmanager
def serve(name: str, folder: Path, pages: int) -> Iterator[Served]:
    """Make or fetch the site, serve it from files in ``folder`` until the block ends.

    ``pages`` is the number of pages of each host of the synthetic site. Raises ``Unavailable`` where the package or
    nginx cannot be had.
    """
    if name in DOCUMENTATION:
        yield from _documentation(name, _root(name), folder)
        return
    site = Site(Shape(pages=pages), folder / "pages")
    site.write()
    hosts = tuple(f"{address}:{site.port}" for address in site.roots)
    with Nginx(folder / "nginx", site.roots, site.port) as nginx:
        yield Served(name, nginx, tuple(site.seeds), hosts, frozenset(site.urls), per_host=4)


def _documentation(name: str, root: Path, folder: Path) -> Iterator[Served]:
    port = free_port()
    seed = f"http://{_ADDRESS}:{port}/index.html"
    pages = frozenset(f"http://{_ADDRESS}:{port}{path}" for path in _known(name, root))
    with Nginx(folder / "nginx", {_ADDRESS: root}, port) as nginx:
        yield Served(name, nginx, (seed,), (f"{_ADDRESS}:{port}",), pages, per_host=16)


def _known(name: str, root: Path) -> list[str]:
    """The paths of all its pages, walked once and kept: the larger set takes most of a minute."""

    def walk(folder: Path) -> None:
        cache.say(f"walking the files of {name} (once)")
        pages = linked_pages(root, f"{_ORIGIN}/index.html")
        (folder / "pages.json").write_text(json.dumps(sorted(page.removeprefix(_ORIGIN) for page in pages)))

    key = cache.digest(str(root), inspect.getsource(linked_pages), inspect.getsource(_links))
    kept: list[str] = json.loads((cache.publish(f"bench/{name}-{key}", walk) / "pages.json").read_text())
    return kept


def linked_pages(root: Path, seed: str) -> set[str]:
    """The URL of each HTML file below ``root`` that links (``a`` and ``area``) lead to from ``seed``'s.

    As nginx serves them: a folder is its ``index.html``, at the URL with the slash.
    """
    origin = "/".join(seed.split("/", 3)[:3])
    waiting = [seed]
    known = {seed}
    pages = set()
    while waiting:
        url = waiting.pop()
        path = root / unquote(url.removeprefix(origin).partition("?")[0]).lstrip("/")
        if path.is_dir() and not url.partition("?")[0].endswith("/"):
            found = [f"{url}/"]  # nginx's redirect
        elif (file := path / "index.html" if path.is_dir() else path).suffix == ".html" and file.is_file():
            pages.add(url)
            found = list(_links(file.read_bytes(), url))
        else:
            continue
        fresh = {link for link in found if link.startswith(f"{origin}/")} - known
        known |= fresh
        waiting += fresh
    return pages


def _links(body: bytes, url: str) -> Iterator[str]:
    tree = LexborHTMLParser(body)
    base = tree.css_first("base[href]")
    at = ada_url.join_url(url, base.attributes["href"] or "") if base else url
    for node in tree.css("a[href], area[href]"):
        try:
            yield ada_url.join_url(at, node.attributes["href"] or "").partition("#")[0]
        except ValueError:
            continue  # no URL at all
