"""The comparison pages that lie beside runs, so that a list can link them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path

from leakscope.model.runs import RunLink

MOST_PAGES = 20
"""More aren't linked: the newest of them are."""
_HEAD = 8192
"""Bytes of a page, in which it says what it is."""
_MOST_LOOKED_AT = 500


def comparisons_in(folders: Sequence[Path]) -> list[RunLink]:
    """Return the comparison pages that lie in some folders, the newest first."""
    pages = [page for folder in folders for page in _pages_in(folder)]
    found = [
        (made, link)
        for made, page in sorted(pages, reverse=True)
        if (link := _link_of(page)) is not None
    ]
    return [link for _, link in found[:MOST_PAGES]]


def _pages_in(folder: Path) -> Iterable[tuple[float, Path]]:
    try:
        return [
            (page.stat().st_mtime, page) for page in sorted(folder.glob("*.html")) if page.is_file()
        ][:_MOST_LOOKED_AT]
    except OSError:
        return []


def _link_of(page: Path) -> RunLink | None:
    """Return the link to a page, None where it is no comparison of ours."""
    try:
        with page.open("rb") as stream:
            head = stream.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    told = _Told()
    try:
        told.feed(head)
    except AssertionError:  # how the parser refuses what is no markup
        return None
    runs = told.metas.get("leakscope-comparison", "")
    if told.metas.get("generator") != "leakscope" or not runs:
        return None
    return RunLink(
        label=f"{runs}, compared", page=str(page), sentence=told.metas.get("description", "")
    )


class _Told(HTMLParser):
    """What the head of a page says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.metas: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a ``meta`` says, the first of each name."""
        told = dict(attrs)
        if tag == "meta" and told.get("name"):
            self.metas.setdefault(str(told["name"]), told.get("content") or "")
