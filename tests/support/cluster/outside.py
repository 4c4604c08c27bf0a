"""The outside world of the box: a network namespace with addresses of three kinds, for test sites.

They exist in here only; nothing of this touches the machine's own network.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster.process import run, start
from tests.support.toolchain import binaries

NETNS = "ext"
PUBLIC = "203.0.113.1"  # it looks public, and is for documentation
PRIVATE = "192.168.77.1"
GLOBAL = "192.0.1.1"  # of no special range, and routed nowhere


def up(run_folder: Path, logs: Path) -> None:
    """Make the namespace and the only way out of the box.

    Must come before the engine: adding a network namespace later remounts /run/netns, and Pods then never end.
    """
    in_ext = ("ip", "netns", "exec", NETNS, "ip")
    run("ip", "link", "set", "lo", "up")
    run("ip", "netns", "add", NETNS)
    run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "world", "netns", NETNS)
    run("ip", "address", "add", "203.0.113.254/24", "dev", "uplink")
    run("ip", "address", "add", "192.168.77.254/24", "dev", "uplink")
    run("ip", "link", "set", "uplink", "up")
    run(*in_ext, "link", "set", "lo", "up")
    run(*in_ext, "address", "add", f"{PUBLIC}/24", "dev", "world")
    run(*in_ext, "address", "add", f"{PRIVATE}/24", "dev", "world")
    run(*in_ext, "address", "add", f"{GLOBAL}/32", "dev", "world")
    run(*in_ext, "link", "set", "world", "up")
    run(*in_ext, "route", "add", "default", "via", "203.0.113.254")
    # kube-apiserver refuses to start without a default route.
    run("ip", "route", "add", "default", "via", PUBLIC)
    _resolver(run_folder)
    _names(run_folder, logs)


def _names(run_folder: Path, logs: Path) -> None:
    """Answer DNS for *.site.test and *.private.test; every other name does not exist."""
    corefile = run_folder / "Corefile"
    zones = {"site.test": PUBLIC, "private.test": PRIVATE}
    answers = "".join(
        f'  template IN A {zone} {{\n    answer "{{{{ .Name }}}} 60 IN A {address}"\n  }}\n'
        f"  template IN AAAA {zone} {{\n    rcode NOERROR\n  }}\n"
        for zone, address in zones.items()
    )
    corefile.write_text(f".:53 {{\n  bind {PUBLIC}\n{answers}  template ANY ANY . {{\n    rcode NXDOMAIN\n  }}\n}}\n")
    start(logs / "dns.log", "ip", "netns", "exec", NETNS, binaries.ensure("coredns")["coredns"], "-conf", corefile)


def _resolver(run_folder: Path) -> None:
    """Point DNS to the outside world; queries to the machine's own servers would only time out."""
    resolv = run_folder / "resolv.conf"
    resolv.write_text(f"nameserver {PUBLIC}\noptions timeout:1 attempts:1\n")
    target = Path("/etc/resolv.conf")
    if not target.exists():  # a link into /run, which is empty in the box
        place = Path("/etc") / target.readlink() if target.is_symlink() else target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    run("mount", "--bind", resolv, target.resolve())
