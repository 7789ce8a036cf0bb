"""The recorded source files: found under other paths, located, quoted. Never reads the disk."""

from __future__ import annotations

import posixpath

from msgspec.structs import replace

from leakscope.analysis.source.cells import NOTEBOOK, Cells
from leakscope.model.census import Site
from leakscope.model.report import Excerpt


class SourceFiles:
    """Texts by path, as recorded; one text recorded under two paths counts once."""

    def __init__(
        self,
        sources: dict[str, str],
        project_root: str = "",
        titles: dict[str, str] | None = None,
    ) -> None:
        self._titles = titles or {}
        cells = {path: sources[path] for path in sources if path in self._titles}
        self._cells = Cells(cells, self._titles)
        sources = {path: text for path, text in sources.items() if path not in cells}
        if cells:
            sources[NOTEBOOK] = self._cells.text
        self._root = _normal(project_root) if project_root else ""
        self.texts: dict[str, str] = {}
        self._same: dict[str, str] = {}
        for path in sorted(sources, key=lambda path: (-len(path), path)):
            twin = self._twin(path, sources[path])
            if twin is None:
                self.texts[path] = sources[path]
            else:
                self._same[path] = twin
        self._lines: dict[str, list[str]] = {}

    def _twin(self, path: str, text: str) -> str | None:
        """Return the path under which the same file is known already."""
        name = posixpath.basename(_normal(path))
        for known, known_text in self.texts.items():
            same_name = posixpath.basename(_normal(known)) == name
            if same_name and known_text == text and text.strip():
                return known
        return None

    def find(self, file: str) -> str | None:
        """Return the recorded path of ``file``, also where it was recorded under another one."""
        if file in self.texts:
            return file
        if file in self._titles:
            return NOTEBOOK
        if file in self._same:
            return self._same[file]
        if not file:
            return None
        return self._by_suffix(_normal(file))

    def _by_suffix(self, wanted: str) -> str | None:
        """Return the one recorded path that shares the longest tail of components."""
        parts = wanted.strip("/").split("/")
        best: list[str] = []
        length = 0
        for path in self.texts:
            shared = _shared_tail(parts, _normal(path).strip("/").split("/"))
            if shared > length:
                best, length = [path], shared
            elif shared and shared == length:
                best.append(path)
        return best[0] if len(best) == 1 else None

    def lines(self, path: str) -> list[str]:
        """Return the lines of a recorded file without their ends; none for an unknown one."""
        if path not in self._lines:
            self._lines[path] = split_lines(self.texts.get(path, ""))
        return self._lines[path]

    def relative(self, file: str) -> str:
        """Return the path as a person of the project would write it."""
        if file in self._titles:
            return self._titles[file]
        path = _normal(file)
        if self._root and path.startswith(self._root.rstrip("/") + "/"):
            return path[len(self._root.rstrip("/")) + 1 :]
        return path

    def location(self, file: str, line: int) -> str:
        """Return ``train.py:12`` as a person would write it, ``In [5]:3`` of a cell."""
        if file == NOTEBOOK and self._titles:
            file, line = self._cells.place(line)
        if file in self._titles:
            return f"{self._titles[file]}:{line}"
        return f"{self.relative(self.find(file) or file)}:{line}"

    def line_in_text(self, file: str, line: int) -> int:
        """Return the line of the text that stands for a file: all cells of a notebook are one."""
        return self._cells.line_in_all(file, line) if file in self._titles else line

    def in_text(self, site: Site) -> Site:
        """Return a place where something was allocated, as a place of the text it stands in."""
        if site.file not in self._titles:
            return site
        return replace(site, file=NOTEBOOK, line=self.line_in_text(site.file, site.line))

    def excerpt(self, file: str, marked: list[int], context: int = 4) -> Excerpt | None:
        """Return the lines around the marked ones, or None where the text isn't known."""
        path = self.find(file)
        if path == NOTEBOOK and self._titles and marked:
            return self._excerpt_of_cell([self.line_in_text(file, one) for one in marked], context)
        lines = self.lines(path) if path else []
        known = sorted({line for line in marked if 1 <= line <= len(lines)})
        if not known:
            return None
        first, last = max(1, known[0] - context), min(len(lines), known[-1] + context)
        while known[-1] - known[0] > 10 * (context + 1):
            known.pop()
            last = min(len(lines), known[-1] + context)
        return Excerpt(
            file=self.relative(path or file),
            first_line=first,
            lines=lines[first - 1 : last],
            marked=known,
        )

    def _excerpt_of_cell(self, marked: list[int], context: int) -> Excerpt:
        first, last = self._cells.bounds(marked[0])
        known = sorted({line for line in marked if first <= line <= last})
        begin = max(first, known[0] - context)
        end = min(last, known[-1] + context, begin + 10 * (context + 1))
        return Excerpt(
            file=self.relative(self._cells.place(first)[0]),
            first_line=begin - first + 1,
            lines=self.lines(NOTEBOOK)[begin - 1 : end],
            marked=[line - first + 1 for line in known if line <= end],
        )


def split_lines(text: str) -> list[str]:
    """Return the lines as Python counts them: form feeds and the like end none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _normal(path: str) -> str:
    return posixpath.normpath(path.replace("\\", "/"))


def _shared_tail(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(reversed(left), reversed(right), strict=False):
        if one != other:
            break
        count += 1
    return count
