"""The index of the user's sources: who feeds a container, where it was defined."""

from __future__ import annotations

from functools import cached_property

from msgspec.structs import replace

from leakscope.analysis.source.anchors import anchor
from leakscope.analysis.source.definitions import find_definition
from leakscope.analysis.source.files import SourceFiles
from leakscope.analysis.source.lines import FeedingLine
from leakscope.analysis.source.mutations import CALLED, OUTER, REBOUND, Mutation, find_mutations
from leakscope.analysis.source.program import Program
from leakscope.analysis.source.ranking import Heat, rank
from leakscope.analysis.source.references import References
from leakscope.analysis.source.suspects import (
    cache_decorator,
    cached_function,
    keeps_hooks,
    suspect_mutations,
)
from leakscope.analysis.source.types import Types
from leakscope.model.census import CensusRow, Owner
from leakscope.model.report import Excerpt

_ASSIGNED = frozenset({"assign", "setattr"})
_MOST_LINES = 8


class SourceIndex:
    """Answers questions about a container from the recorded sources; never reads a file.

    Args:
        sources: Text of each source file by its path, as recorded.
        project_root: The folder that shown paths are relative to.
        titles: What the cells of a notebook are called, by their paths.

    """

    def __init__(
        self,
        sources: dict[str, str],
        project_root: str = "",
        titles: dict[str, str] | None = None,
    ) -> None:
        self.files = SourceFiles(sources, project_root, titles)
        self._found: dict[tuple[str, str, Owner | None], References] = {}

    @cached_property
    def program(self) -> Program:
        """The parsed sources."""
        return Program(self.files)

    @cached_property
    def types(self) -> Types:
        """What the sources tell about classes."""
        return Types(self.program)

    @cached_property
    def heat(self) -> Heat:
        """Which functions run repeatedly."""
        return Heat(self.program)

    def defines(self, type_name: str) -> bool:
        """Return whether a class, by its qualified name, is one of the program's own."""
        module, _, name = type_name.rpartition(".")
        return module.startswith("__main__") or name in self.program.classes

    def references(self, owner: Owner | None, row: CensusRow) -> References:
        """Return every expression that refers to the row's container."""
        key = (row.path, row.name, owner)
        if key not in self._found:
            self._found[key] = anchor(self.program, self.types, owner, row)
        return self._found[key]

    def mutations(
        self, owner: Owner | None, row: CensusRow, phase: str = "", *, grows_inside: bool = False
    ) -> list[Mutation]:
        """Return the statements behind ``feeding``, best first."""
        sites = [self.files.in_text(site) for site in row.allocated_at]
        row = replace(row, allocated_at=sites)
        references = self.references(owner, row)
        found = find_mutations(references, row)
        # Only hooks that are registered come to where hooks are kept, not what is put around it.
        least = OUTER if keeps_hooks(row) else CALLED
        if all(mutation.distance >= least for mutation in found):
            found = suspect_mutations(references, row) or found
        ranked = rank(found, row, self.heat, phase, grows_inside=grows_inside)
        return ranked[:_MOST_LINES]

    def feeding(
        self, owner: Owner | None, row: CensusRow, phase: str = "", *, grows_inside: bool = False
    ) -> list[FeedingLine]:
        """Return the lines that put something into the row's container, likeliest first.

        ``grows_inside`` says that it has no more items than before, and that those become larger.
        """
        found = self.mutations(owner, row, phase, grows_inside=grows_inside)
        return [self._line(mutation) for mutation in found]

    def assigning(self, owner: Owner | None, row: CensusRow, phase: str = "") -> list[FeedingLine]:
        """Return the lines that make the row's own attribute refer to something else, likeliest
        first: not those that fill what holds it.
        """
        references = self.references(owner, row)
        found = [m for m in find_mutations(references, row) if m.form in _ASSIGNED]
        return [self._line(m) for m in rank(found, row, self.heat, phase)[:_MOST_LINES]]

    def _line(self, mutation: Mutation) -> FeedingLine:
        file, line = mutation.statement.scope.module.file, mutation.statement.line
        text = self.files.lines(file)[line - 1].strip()
        is_direct = mutation.distance < REBOUND
        return FeedingLine(file=file, line=line, text=text, form=mutation.form, is_direct=is_direct)

    def defined_at(self, owner: Owner | None, row: CensusRow) -> str | None:
        """Return ``file:line`` of the container's first binding, None where it can't be told."""
        references = self.references(owner, row)
        cached = cached_function(references, row)
        decorator = cache_decorator(cached) if cached is not None else None
        if cached is not None and decorator is not None:
            return self.location(cached.module.file, decorator.lineno)
        found = find_definition(references)
        return self.location(*found) if found else None

    def excerpt(self, file: str, lines: list[int], context: int = 4) -> Excerpt | None:
        """Return the source around some lines, None where it wasn't recorded."""
        return self.files.excerpt(file, lines, context)

    def location(self, file: str, line: int) -> str:
        """Return ``train.py:12`` as a person would write it, ``In [5]:3`` of a cell."""
        return self.files.location(file, line)
