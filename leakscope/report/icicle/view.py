"""The icicle as plain values for the template, and the data with which the script redraws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakscope.analysis.retained.weights import Weights, grown, held
from leakscope.model.retained import NodeKind, Retained
from leakscope.model.sizes import plural
from leakscope.report.comparing.changes import ChangeView
from leakscope.report.culprit import CulpritView
from leakscope.report.icicle import words
from leakscope.report.icicle.layout import REST, Box, lay_out
from leakscope.report.sizes import UNKNOWN, Size, size_of

HELD, GROWTH = "held", "growth"
TABLE_ROWS = 30
_FAINT, _DEEP = 14, 46
"""Per cent of colour in a box of growth: where much shrank besides, and where all of it grew."""


@dataclass(frozen=True)
class Mark:
    """A culprit that a box is of."""

    anchor: str
    """Of its card."""
    sign: str
    """A few letters for the box: its rank, or what became of it."""
    words: str
    tone: str = ""
    """What became of it, where two runs are compared."""


@dataclass(frozen=True)
class BoxView:
    """One box: where it stands, what it says, and how deep its colour is."""

    kind: str
    direction: str
    left: str
    width: str
    row: int
    tint: str
    label: str
    type: str
    title: str
    size: Size
    mark: Mark | None


@dataclass(frozen=True)
class FigureView:
    """One picture: what is held at a moment, or what grew between two."""

    mode: str
    title: str
    moment: str
    total: Size
    rows: int
    boxes: list[BoxView]


@dataclass(frozen=True)
class RowView:
    """A line of the table that says the same in numbers."""

    name: str
    shown: Size
    first: Size
    last: Size
    change: Size
    mark: Mark | None


@dataclass(frozen=True)
class IcicleView:
    """Everything that the template shows; ``data`` is what the script draws any other view from."""

    key: str
    mode: str
    figures: list[FigureView]
    moments: list[str]
    first: int
    last: int
    shown: int
    devices: list[str]
    device: str
    rows: list[RowView]
    notes: list[str]
    anchors: frozenset[str]
    """Culprits that have a box."""
    data: dict[str, Any]


@dataclass(frozen=True)
class _Subject:
    """What is drawn: a tree on one device, what its moments are called, and the culprits in it."""

    retained: Retained
    device: str
    moments: Sequence[str]
    marks: Mapping[int, Mark]


def icicle_view(
    retained: Retained | None, culprits: Sequence[CulpritView] = (), processes: int = 1
) -> IcicleView | None:
    """Return the icicle of a run of so many processes, None where no census tells anything."""
    if retained is None:
        return None
    signs = {c.path: Mark(c.anchor, c.rank, f"culprit {c.rank}: {c.name}") for c in culprits}
    return _view(retained, words.moments(retained), signs, HELD, words.notes(retained, processes))


def comparison_icicle(
    retained: Retained | None, changes: Sequence[ChangeView] = ()
) -> IcicleView | None:
    """Return the icicle of what differs between two runs, None where either tells of none."""
    if retained is None:
        return None
    moments = words.moments(retained, ("Before", "After"))
    signs = {
        c.path: Mark(c.anchor, c.label, f"{c.label}: {c.name}", c.change) for c in changes if c.path
    }
    return _view(retained, moments, signs, GROWTH, words.doubts(retained))


def _view(
    retained: Retained,
    moments: Sequence[str],
    signs: Mapping[str, Mark],
    mode: str,
    notes: Sequence[str],
) -> IcicleView:
    devices = [*dict.fromkeys(d for census in retained.censuses for d in census.bytes)]
    device = max(devices, key=lambda d: grown(retained, d, *_ends(retained)).widths[0])
    subject = _Subject(retained, device, moments, _marks(retained, signs))
    return IcicleView(
        key="memory",
        mode=mode,
        figures=[
            _held_figure(subject),
            _growth_figure(subject, "Growth" if mode == HELD else "Difference"),
        ],
        moments=[*moments],
        first=retained.first,
        last=retained.last,
        shown=retained.shown,
        devices=devices,
        device=device,
        rows=_rows(subject),
        notes=[note for note in notes if note],
        anchors=frozenset(mark.anchor for mark in subject.marks.values()),
        data=_data(subject, mode),
    )


def _ends(retained: Retained) -> tuple[int, int]:
    return retained.first, retained.last


def _marks(retained: Retained, signs: Mapping[str, Mark]) -> dict[int, Mark]:
    return {
        place: signs[node.path]
        for place, node in enumerate(retained.nodes)
        if node.kind is NodeKind.ROW and node.path in signs
    }


def _held_figure(subject: _Subject) -> FigureView:
    retained = subject.retained
    census = retained.censuses[retained.shown]
    weights = held(retained, subject.device, retained.shown)
    boxes = _boxes(subject, weights, words.WHOLE[census.scope], HELD)
    return FigureView(
        mode=HELD,
        title="Held",
        moment=subject.moments[retained.shown],
        total=size_of(weights.bytes[0]),
        rows=1 + max((box.row for box in boxes), default=0),
        boxes=boxes,
    )


def _growth_figure(subject: _Subject, title: str) -> FigureView:
    retained = subject.retained
    first, last = _ends(retained)
    scopes = [retained.censuses[place].scope for place in (first, last)]
    whole = words.WHOLE[scopes[0]] if scopes[0] is scopes[1] else words.BOTH
    weights = grown(retained, subject.device, first, last)
    boxes = _boxes(subject, weights, whole, GROWTH)
    return FigureView(
        mode=GROWTH,
        title=title,
        moment=f"{subject.moments[first]} → {subject.moments[last]}",
        total=size_of(weights.bytes[0], signed=True),
        rows=1 + max((box.row for box in boxes), default=0),
        boxes=boxes,
    )


def _boxes(subject: _Subject, weights: Weights, whole: str, mode: str) -> list[BoxView]:
    laid = lay_out(subject.retained.nodes, weights)
    return [_box(subject, box, whole, mode) for box in laid]


def _box(subject: _Subject, box: Box, whole: str, mode: str) -> BoxView:
    node = subject.retained.nodes[box.node]
    size = size_of(box.bytes, signed=mode == GROWTH)
    label = {
        REST: words.NOT_NAMED,
        NodeKind.SMALLER.value: plural(box.count, "smaller one"),
        NodeKind.WHOLE.value: whole,
    }.get(box.kind, node.label)
    own = box.kind == node.kind.value
    return BoxView(
        kind=box.kind,
        direction=_direction(box.bytes) if mode == GROWTH else "",
        left=f"{100 * box.left:.3f}%",
        width=f"{100 * box.width:.3f}%",
        row=box.row,
        tint=f"{_FAINT + (_DEEP - _FAINT) * abs(box.bytes) / max(box.changed, 1):.0f}%",
        label=label,
        type=words.short_type(node) if own else "",
        title=f"{(own and node.name) or label}: {size.text} ({size.exact})",
        size=size,
        mark=subject.marks.get(box.node) if own else None,
    )


def _direction(change: int) -> str:
    return "up" if change > 0 else "down" if change < 0 else "even"


def _rows(subject: _Subject) -> list[RowView]:
    """Return the names that hold most, with what they held at the moments of both pictures."""
    retained, device = subject.retained, subject.device
    first, last = (held(retained, device, place).bytes for place in _ends(retained))
    shown = held(retained, device, retained.shown).bytes
    change = grown(retained, device, *_ends(retained))
    rows = [place for place, node in enumerate(retained.nodes) if node.kind is NodeKind.ROW]
    rows.sort(key=lambda p: (-max(shown[p] or 0, last[p] or 0, change.widths[p]), p))
    return [
        RowView(
            name=retained.nodes[place].name,
            shown=_held_size(shown[place]),
            first=_held_size(first[place]),
            last=_held_size(last[place]),
            change=_change_size(first[place], last[place], change.bytes[place]),
            mark=subject.marks.get(place),
        )
        for place in rows[:TABLE_ROWS]
    ]


def _held_size(size: int | None) -> Size:
    return Size(UNKNOWN, words.ABSENT) if size == 0 else size_of(size)


def _change_size(first: int | None, last: int | None, change: int | None) -> Size:
    if first == last == 0:
        return Size(UNKNOWN, f"both times {words.ABSENT}")
    return size_of(change, signed=True)


def _data(subject: _Subject, mode: str) -> dict[str, Any]:
    nodes = subject.retained.nodes
    censuses = zip(subject.moments, subject.retained.censuses, strict=True)
    return {
        "mode": mode,
        "parents": [node.parent for node in nodes],
        "kinds": [node.kind.value for node in nodes],
        "labels": [words.node_label(node) for node in nodes],
        "names": [node.name for node in nodes],
        "types": [words.type_words(node) for node in nodes],
        "counts": [node.count for node in nodes],
        "marks": {str(p): [m.anchor, m.sign, m.words, m.tone] for p, m in subject.marks.items()},
        "first": subject.retained.first,
        "last": subject.retained.last,
        "shown": subject.retained.shown,
        "device": subject.device,
        "words": {"rest": words.NOT_NAMED, "both": words.BOTH},
        "censuses": [
            {
                "moment": moment,
                "whole": words.WHOLE[census.scope],
                "scope": census.scope.value,
                "bytes": census.bytes,
            }
            for moment, census in censuses
        ],
    }
