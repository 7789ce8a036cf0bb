"""What a snapshot answers: rows by name, the tree under a name, totals by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from leakscope.heap import kinds
from leakscope.heap.memory import reached_bytes, total_bytes
from leakscope.heap.snapshots.printing import Cell, Column, Page, Printed, Table, count, place, size
from leakscope.model.census import CensusRow
from leakscope.model.sizes import human_bytes, plural


class Rows(Printed, Sequence[CensusRow]):
    """Rows in a sequence; see :class:`~leakscope.model.census.CensusRow` for what each tells."""

    def __init__(self, rows: Sequence[CensusRow], title: str, notes: Sequence[str] = ()) -> None:
        self._rows = tuple(rows)
        self._title = title
        self._notes = tuple(notes)

    @overload
    def __getitem__(self, index: int) -> CensusRow: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[CensusRow, ...]: ...

    def __getitem__(self, index: int | slice) -> CensusRow | tuple[CensusRow, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def page(self) -> Page:
        """Return the rows as a table."""
        tables = [rows_table(self._rows)] if self._rows else []
        return Page(self._title, tables=tables, notes=self._notes)


@dataclass(frozen=True, repr=False)
class Tree(Printed):
    """What lies under a name: what is reached through it first, and what that keeps alive."""

    row: CensusRow | None
    """None above all names."""
    children: tuple[Tree, ...]
    """The heaviest first."""
    omitted: int = 0
    """Rows below this one that are not among the children or below them."""
    omitted_bytes: int = 0
    """What is named through those, on all devices."""

    def page(self) -> Page:
        """Return the tree as an indented table."""
        lines = list(self._lines("", 0))
        rows = [line.row for line in lines if line.row is not None]
        columns = row_columns(rows, paths=False)
        cells = [
            [*columns.cells(line.row, Cell(line.text, line.path, line.depth))]
            if line.row
            else [*([Cell("")] * (len(columns.columns) - 1)), Cell(line.text, "", line.depth)]
            for line in lines
        ]
        name = "all names" if self.row is None else self.row.path
        return Page(f"Under {name}", tables=[Table(columns.columns, cells)] if cells else [])

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


class Types(Printed, Sequence[TypeRow]):
    """Types in a sequence, the heaviest first."""

    def __init__(self, rows: Sequence[TypeRow], title: str) -> None:
        self._rows = tuple(rows)
        self._title = title

    @overload
    def __getitem__(self, index: int) -> TypeRow: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[TypeRow, ...]: ...

    def __getitem__(self, index: int | slice) -> TypeRow | tuple[TypeRow, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def page(self) -> Page:
        """Return the types as a table."""
        return Page(self._title, tables=[types_table(self._rows)] if self._rows else [])


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

    asked: str
    types: tuple[TypeRow, ...]
    rows: tuple[CensusRow, ...]
    """Those with a name of their own, the heaviest first."""
    held_in: tuple[Holding, ...]
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
        total: dict[str, int] = {}
        for row in self.types:
            for device, amount in row.payload_bytes.items():
                total[device] = total.get(device, 0) + amount
        return total

    def page(self, *, shown: int = 10) -> Page:
        """Return totals, what holds them, and those with names of their own."""
        tables = [types_table(self.types, "By type")] if len(self.types) > 1 else []
        if self.held_in:
            tables.append(_holdings_table(self.held_in[:shown]))
        if self.rows:
            caption = "With a name of their own"
            if len(self.rows) > shown:
                caption += f": the {shown} heaviest of {len(self.rows)}"
            tables.append(rows_table(self.rows[:shown], caption))
        sizes = human_bytes(self.bytes)
        payload = sum(self.payload_bytes.values())
        sizes += f", and {human_bytes(payload)} of tensor storage" if payload else ""
        return Page(f"{self.asked}: {plural(self.count, 'object')}, {sizes}", tables=tables)


class RowColumns(NamedTuple):
    """The columns that some rows need, and how to fill them."""

    columns: list[Column]
    fill: list[Callable[[CensusRow], Cell]]

    def cells(self, row: CensusRow, name: Cell) -> list[Cell]:
        """Return the cells of a row; ``name`` is the last."""
        return [*(fill(row) for fill in self.fill), name]


def row_columns(rows: Sequence[CensusRow], *, paths: bool = True) -> RowColumns:
    """Return the columns that tell something about these rows; the name comes last."""
    devices = sorted({device for row in rows for device in row.device_bytes})
    found: list[tuple[Column, Callable[[CensusRow], Cell]]] = [
        (Column("retained"), lambda row: size(row.host_bytes))
    ]
    found += [(Column(device), _on_device(device)) for device in devices]
    if any(row.shared_bytes for row in rows):
        found.append((Column("shared", optional=True), _shared))
    if any(row.count > 1 for row in rows):
        found.append((Column("objects", optional=True), lambda row: count(row.count)))
    if any(items(row) is not None for row in rows):
        found.append((Column("items", optional=True), lambda row: count(items(row))))
    if any(row.graph_nodes for row in rows):
        found.append((Column("graph", optional=True), _graph_nodes))
    found.append((Column("type", number=False, flexible=True), lambda row: type_cell(row.type)))
    columns = [column for column, _ in found]
    if paths:
        found.append((Column("name", number=False, repeats=True), _name))
        columns.append(found[-1][0])
    last = Column("path" if paths else "name", number=False, flexible=True)
    return RowColumns([*columns, last], [fill for _, fill in found])


def rows_table(rows: Sequence[CensusRow], caption: str = "") -> Table:
    """Return rows as a table."""
    columns = row_columns(rows)
    return Table(columns.columns, [columns.cells(r, Cell(r.path)) for r in rows], caption)


def types_table(rows: Sequence[TypeRow], caption: str = "") -> Table:
    """Return types as a table."""
    devices = sorted({d for row in rows for d, amount in row.payload_bytes.items() if amount})
    columns = [
        Column("objects"),
        Column("size"),
        *(Column(f"storage {place(device)}") for device in devices),
        Column("type", number=False, flexible=True),
    ]
    cells = [
        [
            count(row.count),
            size(row.bytes),
            *(_or_empty(row.payload_bytes.get(device, 0)) for device in devices),
            Cell(row.type),
        ]
        for row in rows
    ]
    return Table(columns, cells, caption)


def _holdings_table(holdings: Sequence[Holding]) -> Table:
    columns = [
        Column("objects"),
        Column("retained"),
        Column("name", number=False, repeats=True),
        Column("path", number=False, flexible=True),
    ]
    cells = [[count(h.count), size(h.bytes), Cell(h.row.name), Cell(h.row.path)] for h in holdings]
    return Table(columns, cells, "Held in")


def below(path: str, above: str) -> str:
    """Return the steps of a path from the one above it; all of it where it does not begin so."""
    return path[len(above) :] if above and path.startswith(above) and path != above else path


def is_heavier(row: CensusRow) -> tuple[int, int, str]:
    """Return the key by which the heaviest row comes first."""
    return (-total_bytes(row), -reached_bytes(row), row.path)


def items(row: CensusRow) -> int | None:
    """Return how many items the containers of a row hold; None of text and other objects."""
    return row.length if row.kind in kinds.CONTAINERS else None


def type_cell(name: str) -> Cell:
    """Return a cell with the bare name of a type, the qualified one behind it."""
    return Cell(bare(name), name)


def bare(name: str) -> str:
    """Return the name of a class without its module and the classes around it."""
    return name.rpartition(".")[2]


def _on_device(device: str) -> Callable[[CensusRow], Cell]:
    return lambda row: _or_empty(row.device_bytes.get(device, 0))


def _shared(row: CensusRow) -> Cell:
    return _or_empty(sum(row.shared_bytes.values()))


def _graph_nodes(row: CensusRow) -> Cell:
    return count(row.graph_nodes or None)


def _name(row: CensusRow) -> Cell:
    return Cell(row.name)


def _or_empty(amount: int) -> Cell:
    return size(amount) if amount else Cell("")
