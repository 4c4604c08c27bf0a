"""A web site for crawl tests, served by a real nginx outside of the cluster, and the log of what was asked of it.

In the box nginx runs in the network namespace `ext`, on an address that looks public (or, when asked, on a private
one, or on one that is global by every table, which documentation ranges are not). With the machine's own Docker engine
it runs in a container on kind's network, on that container's address.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.cluster.process import Failed, run, start, wait_until
from tests.support.toolchain import debian

NGINX_IMAGE = "nginx:alpine"
# The packages whose HTML is real content, by the name that tests use.
DOCUMENTATION = {
    "python3-doc": ("python3.11-doc", "usr/share/doc/python3.11/html"),
    "rust-doc": ("rust-doc", "usr/share/doc/rust-doc/html"),
}
_CONFIG = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
# Workers as root: a test's folders are readable by its own user only.
user root;
events {{ worker_connections 1024; }}
http {{
  types {{ text/html html htm; text/css css; application/javascript js; text/plain txt; image/png png;
           image/svg+xml svg; application/json json; application/pdf pdf; application/xml xml; }}
  default_type application/octet-stream;
  log_format lines escape=json '{{"time":$msec,"method":"$request_method","path":"$request_uri","status":$status,'
    '"bytes":$body_bytes_sent,"agent":"$http_user_agent","host":"$http_host","client":"$remote_addr"}}';
  access_log {folder}/access.log lines;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  limit_req_zone $server_name zone=pace:1m rate={rate}r/s;
  server {{
    listen {listen};
    server_name site;
    root {root};
    index index.html;
    {pace}
    {extra}
  }}
}}
"""


@dataclass(frozen=True)
class Request:
    """One line of the access log; `path` is what stood on the wire."""

    time: float
    method: str
    path: str
    status: int
    bytes: int
    agent: str
    host: str
    client: str


@dataclass
class Site:
    """A folder served over HTTP. `with Site(folder) as site:` or start() and stop(), any number of times.

    limit_rate: nginx's own notation per connection, as in "20k". requests_per_second: excess requests are delayed,
    never refused, so that a crawl can be killed half way. extra: more lines for nginx's `server` block. private and
    truly_global choose another address, in the box.
    """

    root: Path
    port: int = 8080
    private: bool = False
    truly_global: bool = False
    limit_rate: str = ""
    requests_per_second: int = 0
    extra: str = ""
    address: str = ""
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="site-", dir=_run_dir())))
    _process: subprocess.Popen[bytes] | None = None
    _container: str = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def url(self, path: str = "/") -> str:
        """The address of a page, as a crawl's seed."""
        port = "" if self.port == 80 else f":{self.port}"
        return f"http://{self.address}{port}{path}"

    def start(self) -> None:
        """Serve; returns when the port answers. The access log is kept from one start to the next."""
        if _mode() == "docker":
            self._start_container()
        elif "SITE_NETNS" in os.environ:
            self._start_process()
        else:
            raise Failed("This cluster has no outside world to serve a site from.")

    def stop(self) -> None:
        """Stop serving, at once; connections are refused from here on."""
        if self._process:
            self._process.terminate()  # nginx's fast shutdown: it ends at once, and its workers with it
            self._process.wait(10)
            self._process = None
        if self._container:
            run("docker", "rm", "--force", self._container)
            self._container = ""

    def requests(self, at_least: int = 0) -> list[Request]:
        """Everything that was asked so far, in the order of the answers.

        nginx writes a line after the answer has left: to see the last one, say how many there must be.
        """
        wait_until(lambda: len(self._lines()) >= at_least, 10, f"{at_least} requests in the access log")
        return [Request(**json.loads(line)) for line in self._lines()]

    def _lines(self) -> list[str]:
        log = self._folder / "access.log"
        text = log.read_text() if log.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()  # the last line may be half written

    def _write(self, folder: str, root: str, listen: str) -> Path:
        pace = [f"limit_rate {self.limit_rate};"] if self.limit_rate else []
        pace += ["limit_req zone=pace burst=100000;"] if self.requests_per_second else []
        text = _CONFIG.format(
            folder=folder,
            root=root,
            listen=listen,
            rate=self.requests_per_second or 1,
            pace="\n    ".join(pace),
            extra=self.extra,
        )
        target = self._folder / "nginx.conf"
        target.write_text(text)
        return target

    def _start_process(self) -> None:
        kind = "GLOBAL_" if self.truly_global else "PRIVATE_" if self.private else ""
        self.address = os.environ[f"SITE_{kind}ADDRESS"]
        config = self._write(str(self._folder), str(self.root), f"{self.address}:{self.port}")
        enter = ("ip", "netns", "exec", os.environ["SITE_NETNS"])
        self._process = start(self._folder / "nginx.log", *enter, "nginx", "-p", self._folder, "-c", config)
        process = self._process
        wait_until(lambda: process.poll() is not None or _listens(self.address, self.port), 15, "nginx")
        if process.poll() is not None:
            raise Failed(f"nginx did not start: {(self._folder / 'nginx.log').read_text().strip()[-500:]}")

    def _start_container(self) -> None:
        self._write("/site", "/content", str(self.port))
        (self._folder / "nginx.pid").unlink(missing_ok=True)  # of an earlier start
        mounts = ("-v", f"{self.root}:/content:ro", "-v", f"{self._folder}:/site")
        command = ("nginx", "-c", "/site/nginx.conf")
        self._container = run(
            *("docker", "run", "--detach", "--rm", "--network", "kind", *mounts, NGINX_IMAGE, *command), timeout=120
        ).strip()
        where = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
        self.address = run("docker", "inspect", "--format", where, self._container).strip()
        wait_until((self._folder / "nginx.pid").exists, 15, "nginx")


def documentation(name: str = "python3-doc") -> Path:
    """The HTML of a Debian documentation package, unpacked in the cache; prefetched outside of the box."""
    package, folder = DOCUMENTATION[name]
    return debian.unpacked(package) / folder


def prefetch() -> None:
    """Fetch the content that the tests serve: the large one only where it is asked for."""
    documentation("python3-doc")
    if os.environ.get("SITE") == "large":
        documentation("rust-doc")


def _listens(address: str, port: int) -> bool:
    done = run("ip", "netns", "exec", os.environ["SITE_NETNS"], "ss", "-Hltn", f"src {address}:{port}")
    return bool(done.strip())


def _mode() -> str:
    return os.environ.get("CLUSTER_MODE", "")


def _run_dir() -> str | None:
    return os.environ.get("CLUSTER_RUN_DIR")
