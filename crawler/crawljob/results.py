"""The parts of the spec that say what is stored of a crawl, and what is verified."""

from __future__ import annotations

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

    fragments: bool = Field(
        True,
        description="Whether the ids of each page are stored, so that links to a part of a page (#id) can be verified.",
    )
