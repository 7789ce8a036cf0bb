"""Reads a page as a browser would: elements, attributes, text, and what scripts hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}


@dataclass
class Seen:
    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    policy: str = ""
    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    text: str = ""
    unclosed: list[str] = field(default_factory=list)
    labelled_by: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen = Seen()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.seen.tags.add(tag)
        self.seen.attributes.update(name for name, _ in attrs)
        for name in ("href", "src", "xlink:href", "action"):
            if name in values:
                self.seen.links.append(values[name] or "")
        if values.get("id"):
            self.seen.ids.append(values["id"] or "")
        self.seen.labelled_by += (values.get("aria-labelledby") or "").split()
        if values.get("http-equiv") == "Content-Security-Policy":
            self.seen.policy = values["content"] or ""
        if tag == "script":
            self.seen.scripts.append((values, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}> near {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, text = self.seen.scripts[-1]
            self.seen.scripts[-1] = (attributes, text + data)
        elif not self.open or self.open[-1] != "style":
            self.seen.text += data.replace("\N{NO-BREAK SPACE}", " ")


def read_page(page: str) -> Seen:
    """Return what a page consists of; fails where elements aren't properly nested."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    reader.seen.unclosed = reader.open
    return reader.seen
