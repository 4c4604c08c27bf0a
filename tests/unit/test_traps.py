"""Which links look like a trap, and by which name."""

from __future__ import annotations

import pytest

from durable_crawler.traps import MAX_PARAMETERS, MAX_SAME_PARAMETER, MAX_SEGMENTS, Trap, trap

SITE = "https://x.example"


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a/b/c/",
        "/2011/11/11",
        "/a/a",
        "/a/a/b/a/a",
        "/a/b/a/b",
        "/a/b/a/b/a",
        "/" + "/".join(f"s{n}" for n in range(MAX_SEGMENTS)),
        "/web/2020/https://y.example/",
        "/?" + "&".join(f"p{n}=1" for n in range(MAX_PARAMETERS)),
        "/?" + "&".join(["f[]=1"] * MAX_SAME_PARAMETER),
        "/?a&&&&&&&&&&&&b",
        "/?next=/a/a/a/a/a",
        "/a?b/b/b/b",
    ],
)
def test_honest_links(target: str) -> None:
    assert trap(SITE + target) is None


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/" + "/".join(f"s{n}" for n in range(MAX_SEGMENTS + 1)), Trap.SEGMENTS),
        ("/" + "a/b" * 1000, Trap.SEGMENTS),
        ("/a/a/a", Trap.REPETITION),
        ("/x/a/a/a/y", Trap.REPETITION),
        ("/a/a/a/?q", Trap.REPETITION),
        ("/a/b/a/b/a/b", Trap.REPETITION),
        ("/x/a/b/c/a/b/c/a/b/c", Trap.REPETITION),
        ("/www.x.example/p/www.x.example/p/www.x.example/p/", Trap.REPETITION),
        ("/a////", Trap.REPETITION),
        ("/?" + "&".join(f"p{n}=1" for n in range(MAX_PARAMETERS + 1)), Trap.PARAMETERS),
        ("/?" + "&".join(["f[]=1"] * (MAX_SAME_PARAMETER + 1)), Trap.SAME_PARAMETER),
        ("/p/?q=&q=&q=&q=&q=&q=", Trap.SAME_PARAMETER),
    ],
)
def test_traps(target: str, kind: Trap) -> None:
    assert trap(SITE + target) is kind


def test_a_page_that_nests_below_itself_ends_soon() -> None:
    """A relative link without its scheme, on a server that answers everything."""
    url, requests = f"{SITE}/", 0
    while trap(url) is None:
        url, requests = f"{url}www.x.example/p/", requests + 1
    assert requests == 3
