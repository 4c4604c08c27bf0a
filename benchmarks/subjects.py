"""Who is compared: this crawler in three settings, two ceilings, and its peers. How each is installed and started.

All get the same seeds and hosts, the same number of requests at once where they have such a setting, obey robots.txt
where they can, wait for nothing, log nothing, and keep no pages where that can be switched off.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import yaml
from tests.support.toolchain import binaries, cache, debian
from tests.support.toolchain.binaries import GoTool
from tests.support.toolchain.cache import Failed

from benchmarks.collector import free_port
from benchmarks.sites import Served
from durable_crawler.frontier.reader import FrontierReader

WORKERS = 16
MOST_LINKS = 20_000
LARGEST_PAGE = 16 * 1024 * 1024
"""Rust's documentation has pages of 10 MB, and one of them more links than a crawl follows unless it is told."""
ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).parent / "peers"
LOCK = ROOT / "requirements" / "peers.lock"
COLLY = GoTool(str(PEERS / "colly"), "durable-crawler.io/benchmarks/colly", "github.com/gocolly/colly/v2")
INSTALL_LIMIT_SECONDS = 900
_SERVER_ERRORS = 8  # wget's and wget2's exit code when some page was an error, as in any real site


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a subject: what it crawls and where."""

    site: Served
    place: Path
    """Where it runs and may write; what is left there counts."""
    beside: Path
    """For files that do not count: what it is told, what it says."""
    endpoint: str | None = None
    """The Collector's, for a subject with telemetry."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program that is measured."""

    name: str
    about: str
    prepare: Callable[[], object]
    """Installs what is missing. Raises ``Unavailable``."""
    command: Callable[[Job], list[str]]
    own_count: Callable[[Job, str], int | None]
    """Pages by its own account, from its files or from what it printed; None where it gives none."""
    telemetry: bool = False
    fine: frozenset[int] = frozenset({0})
    """Exit codes of a crawl that went well."""


def environment(command: Sequence[str]) -> dict[str, str]:
    """What a subject's process gets: this one's, without proxies, and for a peer without our modules."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    if command[0] != sys.executable:
        kept.pop("PYTHONPATH", None)
    return kept


def _nothing() -> None:
    """What is there already."""


def _ours(*program: str) -> Callable[[Job], list[str]]:
    def command(job: Job) -> list[str]:
        telemetry = {"telemetry": {"endpoint": job.endpoint, "protocol": "http/protobuf"}} if job.endpoint else {}
        spec = {
            "seeds": list(job.site.seeds),
            "scope": {"maxPages": 1_000_000, "maxDepth": 100, "maxLinksPerPage": MOST_LINKS},
            "fetch": {"workers": WORKERS, "perHost": job.site.per_host, "maxBodyBytes": LARGEST_PAGE},
            "network": {"allowCIDRs": ["127.0.0.0/8"]},
            **telemetry,
        }
        head = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "bench"}}
        file = job.beside / "crawljob.yaml"
        file.write_text(yaml.safe_dump({**head, "spec": spec}))
        flags = ["-f", str(file), "--db", str(job.place / "frontier.db"), "--metrics", str(free_port())]
        return [sys.executable, *program, "run", *flags]

    return command


def _stored(job: Job, _said: str) -> int:
    database = job.place / "frontier.db"
    return len(FrontierReader(database).finished_urls() & job.site.pages) if database.exists() else 0


def _told(interpreter: Callable[[], Sequence[str]], variant: str = "") -> Callable[[Job], list[str]]:
    """A program of ``benchmarks/peers``, told by a JSON file."""

    def command(job: Job) -> list[str]:
        urls = job.beside / "urls"
        urls.write_text("\n".join(sorted(job.site.pages)))
        told = {
            "seeds": job.site.seeds,
            "hosts": job.site.hosts,
            "workers": WORKERS,
            "per_host": job.site.per_host,
            "urls": str(urls),
            "variant": variant,
        }
        file = job.beside / "job.json"
        file.write_text(json.dumps(told))
        return [*interpreter(), str(file)]

    return command


def _printed(_job: Job, said: str) -> int:
    lines = [line for line in said.splitlines() if line.startswith('{"pages"')]
    return int(json.loads(lines[-1])["pages"]) if lines else 0


def _ceiling() -> Sequence[str]:
    return (sys.executable, str(PEERS / "ceiling.py"))


def _scrapy() -> Sequence[str]:
    return (str(peers_python()), str(PEERS / "scrapy_crawl.py"))


def _crawlee() -> Sequence[str]:
    return (str(peers_python()), str(PEERS / "crawlee_crawl.py"))


def _colly() -> Sequence[str]:
    return (str(colly()),)


@once
def peers_python() -> Path:
    """The interpreter of the environment with the Python peers, made once. Raises ``Unavailable``."""

    def make(folder: Path) -> None:
        cache.say("installing Scrapy and Crawlee into an environment of their own (once)")
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
        _installed([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        _installed([*pip, "--disable-pip-version-check", "--no-compile", "--require-hashes", "-r", str(LOCK)])

    key = cache.digest(sys.version, sys.base_prefix, LOCK.read_bytes())
    return cache.publish(f"bench/peers-{key}", make) / "bin" / "python"


def locked(*names: str) -> str:
    """The versions of Python peers that the lock file has."""
    pins = (line.split(" ")[0] for line in LOCK.read_text().splitlines() if "==" in line)
    return " ".join(pin for pin in pins if pin.partition("==")[0] in names)


def _installed(command: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603 - ours
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_LIMIT_SECONDS
    )
    if done.returncode:
        raise Failed(f"installing the peers failed: {(done.stderr.strip().splitlines() or ['no word why'])[-1]}")


@once
def colly() -> Path:
    """The program that crawls by Colly, built once. Raises ``Unavailable``, as without Go."""
    return binaries.built("colly", COLLY)


def _program(name: str) -> Callable[[], None]:
    """A program of the machine, or Debian's."""

    def prepare() -> None:
        if shutil.which(name) is None:
            debian.packages(name)

    return prepare


def _wget(*flags: str) -> Callable[[Job], list[str]]:
    """wget has one connection, whatever it is told; wget2 has threads.

    wget gets the first seed alone, from which the other hosts can be reached too: as a spider it would crawl the whole
    site anew for each. wget2 stays on the hosts of its seeds; told to leave them, it asks others whatever its domains.
    """

    def command(job: Job) -> list[str]:
        recursive = ["--no-config", "--quiet", "--recursive", "--level=0", "--tries=4"]
        scope = job.site.seeds
        if flags[0] == "wget":
            hosts = ",".join(host.partition(":")[0] for host in job.site.hosts)
            scope = ("--span-hosts", f"--domains={hosts}", scope[0])
        return [shutil.which(flags[0]) or flags[0], *recursive, *flags[1:], *scope]

    return command


def _unknown(_job: Job, _said: str) -> int | None:
    return None


_CRAWLER = ("-m", "durable_crawler")
_THREADS = f"--max-threads={WORKERS}"
_WGET_FINE = frozenset({0, _SERVER_ERRORS})
SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("ours", "everything on", _nothing, _ours(*_CRAWLER), _stored, telemetry=True),
        Subject("ours-quiet", "without telemetry", _nothing, _ours(*_CRAWLER), _stored),
        Subject("ours-nosync", "no sync at a commit", _nothing, _ours(str(PEERS / "nosync.py")), _stored, True),
        Subject("fetch-only", "aiohttp, told each URL", _nothing, _told(_ceiling, "fetch"), _printed),
        Subject("fetch-parse", "and Lexbor and ada", _nothing, _told(_ceiling, "parse"), _printed),
        Subject("wget2", "C, 16 threads", _program("wget2"), _wget("wget2", _THREADS), _unknown, fine=_WGET_FINE),
        Subject("wget", "C, one connection", _program("wget"), _wget("wget"), _unknown, fine=_WGET_FINE),
        Subject("wget-spider", "keeps no file", _program("wget"), _wget("wget", "--spider"), _unknown, fine=_WGET_FINE),
        Subject("colly", "Go, in memory", colly, _told(_colly), _printed),
        Subject("scrapy", "in memory", peers_python, _told(_scrapy), _printed),
        Subject("scrapy-jobdir", "queue on disk", peers_python, _told(_scrapy, "jobdir"), _printed),
        Subject("crawlee", "in memory", peers_python, _told(_crawlee), _printed),
        Subject("crawlee-sql", "queue in SQLite", peers_python, _told(_crawlee, "sql"), _printed),
    )
}
