"""The parts of the spec that say what is stored of a crawl, and what is verified."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crawljob.model import Model


class Results(Model):
    """What is stored of the pages."""

    edges: bool = Field(
        True,
        description="Whether the links of each page are stored, with their text: without them nothing can say on which "
        "pages a broken link is. What is stored already stays.",
    )


class Audit(Model):
    """What is verified besides the pages themselves."""

    external_links: Literal["ignore", "check"] = Field(
        "ignore",
        description="check: once the crawl's own pages are done, each link to another host is asked for by one HEAD "
        "(by GET where that is refused), one at a time for each host and with a second or more between two; "
        "robots.txt is obeyed, redirects to a third host are recorded and not followed, and nothing is read.",
    )
    max_external_links: int = Field(
        10_000,
        ge=0,
        le=10_000_000,
        description="Links to other hosts that are verified at most; not in scope.maxPages.",
    )

    fragments: bool = Field(
        True,
        description="Whether the ids of each page are stored, so that links to a part of a page (#id) can be verified.",
    )
