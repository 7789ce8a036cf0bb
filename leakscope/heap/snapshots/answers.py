"""What a snapshot answers: rows by name, the tree under a name, totals by type, and what changed
since another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, overload

from leakscope.heap import contents
from leakscope.heap.row_details import reached_bytes, total_bytes
from leakscope.heap.rows import added
from leakscope.model.census import FILE, OUTPUT_HISTORY, REMEDY, SHARED, CensusRow
from leakscope.model.layout import AnswerCell, AnswerPage, Column, Printed, Table, count, size
from leakscope.model.text import human_bytes, plural

_PLACES = {"host": "in host memory", SHARED: "in shared memory", FILE: "in mapped files"}


T = TypeVar("T")


class _Answers(Printed, Sequence[T], Generic[T]):
    def __init__(self, rows: Sequence[T], title: str) -> None:
        self._rows = tuple(rows)
        self._title = title

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)


class Rows(_Answers[CensusRow]):
    """Rows in a sequence; see :class:`~leakscope.model.census.CensusRow` for what each tells."""

    def page(self) -> AnswerPage:
        """Return the rows as a table."""
        tables = [rows_table(self._rows)] if self._rows else []
        return AnswerPage(self._title, tables=tables)


@dataclass(frozen=True, repr=False)
class Tree(Printed):
    """What lies under a name: what is reached through it first, and what that keeps alive."""

    row: CensusRow | None
    """None above all names."""
    children: tuple[Tree, ...]
    omitted: int = 0
    """Rows below this one that are not among the children or below them."""
    omitted_bytes: int = 0
    """What is named through those, on all devices."""

    def page(self) -> AnswerPage:
        """Return the tree as an indented table."""
        lines = list(self._lines("", 0))
        rows = [line.row for line in lines if line.row is not None]
        fills = row_columns(rows, paths=False)
        columns = [*(column for column, _ in fills), Column("name", number=False, flexible=True)]
        cells = [
            [
                *(fill(line.row) if line.row else AnswerCell("") for _, fill in fills),
                AnswerCell(line.text, line.path, line.depth),
            ]
            for line in lines
        ]
        name = "all names" if self.row is None else self.row.path
        return AnswerPage(f"Under {name}", tables=[Table(columns, cells)] if cells else [])

    def _lines(self, above: str, depth: int) -> Iterator[_TreeLine]:
        path = above
        if self.row is not None:
            path = self.row.path
            is_cut = self.omitted and not self.children
            yield _TreeLine(self.row, below(path, above) + (" …" if is_cut else ""), path, depth)
            depth += 1
        for child in self.children:
            yield from child._lines(path, depth)
        if self.omitted and self.children:
            text = f"… {plural(self.omitted, 'more row')}, {human_bytes(self.omitted_bytes)}"
            yield _TreeLine(None, text, "", depth)


class _TreeLine(NamedTuple):
    row: CensusRow | None
    text: str
    path: str
    depth: int


@dataclass(frozen=True)
class TypeRow:
    """All objects of one type."""

    type: str
    """Qualified name; classes that share it are counted together."""
    count: int
    bytes: int
    """Shallow bytes: the objects themselves, with the array data that they own."""
    payload_bytes: dict[str, int]
    """Tensor storages per device, ``host`` included; one that several tensors share is counted for
    the type that was reached first."""
    bases: tuple[str, ...] = ()
    """Qualified names of the classes it inherits from, the nearest first."""

    @property
    def total_bytes(self) -> int:
        """The objects and their payload, on all devices."""
        return self.bytes + sum(self.payload_bytes.values())


class Types(_Answers[TypeRow]):
    """Types in a sequence, the heaviest first."""

    def page(self) -> AnswerPage:
        """Return the types as a table."""
        return AnswerPage(self._title, tables=[types_table(self._rows)] if self._rows else [])


@dataclass(frozen=True)
class Holding:
    """A row that holds objects of a type directly and alone."""

    row: CensusRow
    count: int
    bytes: int
    """What those objects retain, on all devices."""


@dataclass(frozen=True, repr=False)
class OfType(Printed):
    """The objects of a type, or of several that a name or a base class stands for."""

    kind: str
    types: tuple[TypeRow, ...]
    rows: tuple[CensusRow, ...]
    """Those with a name of their own, the heaviest first."""
    holders: tuple[Holding, ...]
    """Rows that alone keep such objects alive, directly: those that hold most of them first."""

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(row.count for row in self.types)

    @property
    def bytes(self) -> int:
        """Shallow bytes of all of them, with the array data that they own."""
        return sum(row.bytes for row in self.types)

    @property
    def payload_bytes(self) -> dict[str, int]:
        """Tensor storages per device, ``host`` included."""
        return added(row.payload_bytes for row in self.types)

    def page(self, *, shown: int = 10) -> AnswerPage:
        """Return totals, what holds them, and those with names of their own."""
        tables = [types_table(self.types, "By type")] if len(self.types) > 1 else []
        if self.holders:
            tables.append(_holdings_table(self.holders[:shown]))
        if self.rows:
            caption = "With a name of their own"
            if len(self.rows) > shown:
                caption += f": the {shown} heaviest of {len(self.rows)}"
            tables.append(rows_table(self.rows[:shown], caption))
        sizes = human_bytes(self.bytes)
        payload = sum(self.payload_bytes.values())
        sizes += f", and {human_bytes(payload)} of tensor storage" if payload else ""
        return AnswerPage(f"{self.kind}: {plural(self.count, 'object')}, {sizes}", tables=tables)


Columns = list[tuple[Column, Callable[[T], AnswerCell]]]
"""The columns of a table, each with what fills its cells."""


def table_of(things: Sequence[T], columns: Columns[T], caption: str = "") -> Table:
    """Return things as a table, a row for each."""
    cells = [[fill(thing) for _, fill in columns] for thing in things]
    return Table([column for column, _ in columns], cells, caption)


def row_columns(rows: Sequence[CensusRow], *, paths: bool = True) -> Columns[CensusRow]:
    """Return the columns that tell something about these rows, but the last, which names them."""
    devices = sorted({device for row in rows for device in row.device_bytes})
    found: Columns[CensusRow] = [(Column("retained"), lambda row: size(row.host_bytes))]
    found += [(Column(device), _on_device(device)) for device in devices]
    if any(row.shared_bytes for row in rows):
        found.append(
            (Column("shared", optional=True), lambda row: _or_empty(sum(row.shared_bytes.values())))
        )
    if any(row.count > 1 for row in rows):
        found.append((Column("objects", optional=True), lambda row: count(row.count)))
    if any(items(row) is not None for row in rows):
        found.append((Column("items", optional=True), lambda row: count(items(row))))
    if any(row.graph_nodes for row in rows):
        found.append((Column("graph", optional=True), lambda row: count(row.graph_nodes or None)))
    found.append((Column("type", number=False, flexible=True), lambda row: type_cell(row.type)))
    if paths:
        found.append((Column("name", number=False, repeats=True), lambda row: AnswerCell(row.name)))
    return found


def rows_table(rows: Sequence[CensusRow], caption: str = "") -> Table:
    """Return rows as a table."""
    columns = row_columns(rows)
    columns.append((Column("path", number=False, flexible=True), lambda row: AnswerCell(row.path)))
    return table_of(rows, columns, caption)


def types_table(rows: Sequence[TypeRow], caption: str = "") -> Table:
    """Return types as a table."""
    devices = sorted({d for row in rows for d, amount in row.payload_bytes.items() if amount})
    columns: Columns[TypeRow] = [
        (Column("objects"), lambda row: count(row.count)),
        (Column("size"), lambda row: size(row.bytes)),
        *((Column(f"storage {place(device)}"), _stored_on(device)) for device in devices),
        (Column("type", number=False, flexible=True), lambda row: AnswerCell(row.type)),
    ]
    return table_of(rows, columns, caption)


def _holdings_table(holdings: Sequence[Holding]) -> Table:
    columns: Columns[Holding] = [
        (Column("objects"), lambda holding: count(holding.count)),
        (Column("retained"), lambda holding: size(holding.bytes)),
        (Column("name", number=False, repeats=True), lambda holding: AnswerCell(holding.row.name)),
        (Column("path", number=False, flexible=True), lambda holding: AnswerCell(holding.row.path)),
    ]
    return table_of(holdings, columns, "Held in")


def below(path: str, above: str) -> str:
    """Return the steps of a path from the one above it; all of it where it does not begin so."""
    return path[len(above) :] if above and path.startswith(above) and path != above else path


def is_heavier(row: CensusRow) -> tuple[int, int, str]:
    """Return the key by which the heaviest row comes first."""
    return (-total_bytes(row), -reached_bytes(row), row.path)


def items(row: CensusRow) -> int | None:
    """Return how many items the containers of a row hold; None of text and other objects."""
    return row.length if row.kind in contents.CONTAINERS else None


def type_cell(name: str) -> AnswerCell:
    """Return a cell with the bare name of a type, the qualified one behind it."""
    return AnswerCell(bare(name), name)


def bare(name: str) -> str:
    """Return the name of a class without its module and the classes around it."""
    return name.rpartition(".")[2]


def _on_device(device: str) -> Callable[[CensusRow], AnswerCell]:
    return lambda row: _or_empty(row.device_bytes.get(device, 0))


def _stored_on(device: str) -> Callable[[TypeRow], AnswerCell]:
    return lambda row: _or_empty(row.payload_bytes.get(device, 0))


def _or_empty(amount: int) -> AnswerCell:
    return size(amount) if amount else AnswerCell("")


_SHOWN = 10


@dataclass(frozen=True)
class RowChange:
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
        after, before = (0 if row is None else row.count for row in (self.after, self.before))
        return after - before

    @property
    def items(self) -> int | None:
        """By how many items in the containers; None where it holds no containers."""
        if items(self.row) is None:
            return None
        both = (self.after, self.before)
        after, before = ((items(row) or 0) if row is not None else 0 for row in both)
        return after - before


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

    appeared: tuple[RowChange, ...]
    """Paths that had no row before: they retained too little, or did not exist."""
    grew: tuple[RowChange, ...]
    shrank: tuple[RowChange, ...]
    vanished: tuple[RowChange, ...]
    """Paths that have no row any more."""
    types: tuple[TypeChange, ...]
    objects: int
    """By how many objects the heap has grown."""
    heap_bytes: int
    """By how many shallow bytes of Python objects."""
    payload_bytes: dict[str, int]
    """By how many bytes of tensor storages and array data, per device, ``host`` included."""
    incomplete: bool
    """Whether a snapshot left out rows because there were too many: what seems to have appeared
    or vanished may then merely have been left out of the other."""

    def page(self) -> AnswerPage:
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
        return AnswerPage(
            f"{title}, {payload}" if payload else title,
            tables=tables,
            notes=[*notes_on(names), *[note] * self.incomplete],
        )


def changes(
    before: Iterable[CensusRow], after: Iterable[CensusRow]
) -> tuple[list[RowChange], list[RowChange], list[RowChange], list[RowChange]]:
    """Return what appeared, grew, shrank and vanished; what stayed the same is in none."""
    old = {row.path: row for row in before}
    new = {row.path: row for row in after}
    appeared = [RowChange(None, row) for path, row in new.items() if path not in old]
    vanished = [RowChange(row, None) for path, row in old.items() if path not in new]
    both = [RowChange(old[path], row) for path, row in new.items() if path in old]
    grew = [change for change in both if _direction(change) > 0]
    shrank = [change for change in both if _direction(change) < 0]
    for part in (appeared, grew, shrank, vanished):
        part.sort(key=lambda change: (-abs(change.bytes), change.path))
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


def _direction(change: RowChange) -> int:
    """Where the bytes are the same, as after an item was replaced, the items tell."""
    return change.bytes or change.items or change.count


def _bytes(row: CensusRow | None) -> int:
    return 0 if row is None else reached_bytes(row)


def _changes_table(title: str, found: Sequence[RowChange]) -> Table:
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
            size(_bytes(change.before)) if change.before else AnswerCell("–"),
            size(_bytes(change.after)) if change.after else AnswerCell("–"),
            count(change.count, signed=True) if change.count else AnswerCell(""),
            count(change.items, signed=True) if change.items else AnswerCell(""),
            type_cell(change.row.type),
            AnswerCell(text, change.path, depth),
        ]
        for change, text, depth in shown
    ]
    more = f": the {_SHOWN} greatest of {len(found)}" if len(found) > _SHOWN else ""
    return Table(columns, rows, title + more)


def _as_tree(found: Sequence[RowChange]) -> list[tuple[RowChange, str, int]]:
    """Put changes below those of the names they lie under, with the steps from there."""
    paths = {change.path for change in found}
    children: dict[str, list[RowChange]] = {}
    for change in found:
        children.setdefault(_nearest_above(change.path, paths), []).append(change)
    lines: list[tuple[RowChange, str, int]] = []

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
        [count(c.count, signed=True), size(c.bytes, signed=True), AnswerCell(c.type)]
        for c in ordered[:_SHOWN]
    ]
    more = f": the {_SHOWN} greatest changes of {len(found)}" if len(found) > _SHOWN else ""
    return Table(columns, rows, f"By type{more}")


def place(device: str) -> str:
    """Say where memory lives: ``in host memory``, ``in shared memory``, ``on cuda:0``."""
    return _PLACES.get(device, f"on {device}")


def notes_on(names: Iterable[str]) -> list[str]:
    """Return what a reader of rows with these names should know."""
    is_displayed = any(name.startswith(OUTPUT_HISTORY) for name in names)
    return [f"Out is the notebook's output history. {REMEDY}"] if is_displayed else []
