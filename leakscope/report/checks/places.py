"""Places in source files, as the formats of CI want them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from leakscope.model.check import Checked
from leakscope.model.printable import one_line


@dataclass(frozen=True)
class Place:
    """A line of a file; line 1 where none is known."""

    file: str
    line: int = 1

    @property
    def is_in_repository(self) -> bool:
        """Whether the path is relative to the repository's root and stays in it."""
        return bool(self.file) and not self.file.startswith(("/", "..", "<"))

    @property
    def uri(self) -> str:
        """The path as a reference of RFC 3986; what no file system could show is spelled out."""
        path = quote(one_line(self.file), safe="/-._~")
        return path if self.is_in_repository else f"file://{path}"


def to_place(text: str) -> Place:
    """Return the place that ``src/train.py:12`` names."""
    file, _, line = text.rpartition(":")
    if file and line.isascii() and line.isdigit() and len(line) < 10:
        return Place(file, max(int(line), 1))
    return Place(text)


def place_of(one: Checked) -> Place | None:
    """Return the line to look at first; None where none is known."""
    return to_place(one.place) if one.place else None
