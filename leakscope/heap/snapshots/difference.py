"""What changed between two snapshots: by path, where ids would deceive, and by type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leakscope.heap.memory import reached_bytes
from leakscope.heap.snapshots.answers import TypeRow, below, items, type_cell
from leakscope.heap.snapshots.printing import (
    Cell,
    Column,
    Page,
    Printed,
    Table,
    count,
    notes_on,
    place,
    size,
)
from leakscope.model.census import CensusRow

_SHOWN = 10


@dataclass(frozen=True)
class Change:
    """A path in two snapshots; ``before`` or ``after`` is None where it had no row."""

    before: CensusRow | None
    after: CensusRow | None

    @property
    def row(self) -> CensusRow:
        """The later of its rows."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def path(self) -> str:
        """Where the objects are: the same before and after."""
        return self.row.path

    @property
    def bytes(self) -> int:
        """By how much what is named through the path has grown, on all devices: what it retains
        and what others keep alive too, for retained sizes alone fall when a second holder comes.
        """
        return _bytes(self.after) - _bytes(self.before)

    @property
    def count(self) -> int:
        """By how many objects."""
        return _count(self.after) - _count(self.before)

    @property
    def items(self) -> int | None:
        """By how many items in the containers; None where it holds no containers."""
        if items(self.row) is None:
            return None
        before = items(self.before) if self.before is not None else 0
        after = items(self.after) if self.after is not None else 0
        return (after or 0) - (before or 0)


@dataclass(frozen=True)
class TypeChange:
    """A type in two snapshots."""

    type: str
    count: int
    """By how many objects."""
    bytes: int
    """By how many shallow bytes, tensor storages on all devices included."""


@dataclass(frozen=True, repr=False)
class Difference(Printed):
    """What became of the heap: each part with the greatest change first."""

    appeared: tuple[Change, ...]
    """Paths that had no row before: they retained too little, or did not exist."""
    grew: tuple[Change, ...]
    shrank: tuple[Change, ...]
    vanished: tuple[Change, ...]
    """Paths that have no row any more."""
    types: tuple[TypeChange, ...]
    objects: int
    """By how many objects the heap has grown."""
    heap_bytes: int
    """By how many shallow bytes of Python objects."""
    payload_bytes: dict[str, int]
    """By how many bytes of tensor storages and array data, per device, ``host`` included."""
    incomplete: bool
    """Whether a snapshot left out rows because there were too many: what is said to have appeared
    or vanished may then merely have been left out of the other."""

    def page(self) -> Page:
        """Return what changed as tables."""
        payload = ", ".join(
            f"{size(amount, signed=True).text} of tensors and arrays {place(device)}"
            for device, amount in self.payload_bytes.items()
            if amount
        )
        title = (
            f"Heap difference: {count(self.objects, signed=True).text} objects, "
            f"{size(self.heap_bytes, signed=True).text} of Python objects"
        )
        parts = [
            ("Grew", self.grew),
            ("Appeared", self.appeared),
            ("Shrank", self.shrank),
            ("Vanished", self.vanished),
        ]
        tables = [_changes_table(title, changes) for title, changes in parts if changes]
        tables += [_types_table(self.types)] if self.types else []
        names = [change.row.name for change in (*self.grew, *self.appeared)]
        note = "Rows were left out of a snapshot: take both with a greater most_objects."
        return Page(
            f"{title}, {payload}" if payload else title,
            tables=tables,
            notes=[*notes_on(names), *[note] * self.incomplete],
        )


def changes(
    before: Iterable[CensusRow], after: Iterable[CensusRow]
) -> tuple[list[Change], list[Change], list[Change], list[Change]]:
    """Return what appeared, grew, shrank and vanished; what stayed the same is in none."""
    old = {row.path: row for row in before}
    new = {row.path: row for row in after}
    appeared = [Change(None, row) for path, row in new.items() if path not in old]
    vanished = [Change(row, None) for path, row in old.items() if path not in new]
    both = [Change(old[path], row) for path, row in new.items() if path in old]
    grew = [change for change in both if _direction(change) > 0]
    shrank = [change for change in both if _direction(change) < 0]
    for part in (appeared, grew, shrank, vanished):
        part.sort(key=_greatest_first)
    return appeared, grew, shrank, vanished


def type_changes(before: Iterable[TypeRow], after: Iterable[TypeRow]) -> list[TypeChange]:
    """Return the types of which there are more or fewer objects or bytes, what grew most first."""
    old = {row.type: (row.count, row.total_bytes) for row in before}
    new = {row.type: (row.count, row.total_bytes) for row in after}
    found = []
    for kind in {**new, **old}:
        (was, weighed), (is_now, weighs) = old.get(kind, (0, 0)), new.get(kind, (0, 0))
        if (was, weighed) != (is_now, weighs):
            found.append(TypeChange(kind, is_now - was, weighs - weighed))
    return sorted(found, key=lambda change: (-change.bytes, -change.count, change.type))


def _direction(change: Change) -> int:
    """Where the bytes are the same, as after an item was replaced, the items tell."""
    return change.bytes or change.items or change.count


def _greatest_first(change: Change) -> tuple[int, str]:
    return (-abs(change.bytes), change.path)


def _bytes(row: CensusRow | None) -> int:
    return 0 if row is None else reached_bytes(row)


def _count(row: CensusRow | None) -> int:
    return 0 if row is None else row.count


def _changes_table(title: str, found: Sequence[Change]) -> Table:
    shown = _as_tree(found[:_SHOWN])
    columns = [
        Column("change"),
        Column("before", optional=True),
        Column("after", optional=True),
        Column("objects", optional=True),
        Column("items", optional=True),
        Column("type", number=False, flexible=True),
        Column("name", number=False, flexible=True),
    ]
    rows = [
        [
            size(change.bytes, signed=True),
            size(_bytes(change.before)) if change.before else Cell("–"),
            size(_bytes(change.after)) if change.after else Cell("–"),
            count(change.count, signed=True) if change.count else Cell(""),
            count(change.items, signed=True) if change.items else Cell(""),
            type_cell(change.row.type),
            Cell(text, change.path, depth),
        ]
        for change, text, depth in shown
    ]
    more = f": the {_SHOWN} greatest of {len(found)}" if len(found) > _SHOWN else ""
    return Table(columns, rows, title + more)


def _as_tree(found: Sequence[Change]) -> list[tuple[Change, str, int]]:
    """Put changes below those of the names they lie under, with the steps from there."""
    paths = {change.path for change in found}
    children: dict[str, list[Change]] = {}
    for change in found:
        children.setdefault(_nearest_above(change.path, paths), []).append(change)
    lines: list[tuple[Change, str, int]] = []

    def add(above: str, depth: int) -> None:
        for change in children.get(above, ()):
            lines.append((change, below(change.path, above), depth))
            add(change.path, depth + 1)

    add("", 0)
    return lines


def _nearest_above(path: str, paths: set[str]) -> str:
    above = [p for p in paths if path != p and path.startswith(p) and path[len(p)] in ".[·(⟨"]
    return max(above, key=len, default="")


def _types_table(found: Sequence[TypeChange]) -> Table:
    ordered = sorted(found, key=lambda change: (-abs(change.bytes), -abs(change.count)))
    columns = [Column("objects"), Column("bytes"), Column("type", number=False, flexible=True)]
    rows = [
        [count(c.count, signed=True), size(c.bytes, signed=True), Cell(c.type)]
        for c in ordered[:_SHOWN]
    ]
    more = f": the {_SHOWN} greatest changes of {len(found)}" if len(found) > _SHOWN else ""
    return Table(columns, rows, f"By type{more}")
