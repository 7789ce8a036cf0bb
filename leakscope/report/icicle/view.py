"""The icicle as plain values for the template, and the data with which the script redraws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leakscope.analysis.retained.weights import Weights, grown, held
from leakscope.model.report import Severity
from leakscope.model.retained import NodeKind, Retained
from leakscope.model.sizes import plural
from leakscope.report.comparing.changes import ChangeView
from leakscope.report.culprit import CulpritView
from leakscope.report.icicle import words
from leakscope.report.icicle.layout import REST, Box, lay_out
from leakscope.report.icicle.subject import Mark, Subject
from leakscope.report.icicle.table import TableView, table_of
from leakscope.report.sizes import Size, size_of

HELD, GROWTH = "held", "growth"
_FAINT, _DEEP = 14, 46
"""Per cent of colour in a box of growth: where much shrank besides, and where all of it grew."""


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
class IcicleView:
    """Everything that the template shows; ``data`` is what the script draws any other view from."""

    key: str
    mode: str
    process: str
    """Whose memory is drawn; empty where there is a single process."""
    processes: list[str]
    """All that can be chosen, the one that is drawn first."""
    places: dict[tuple[int, int], str]
    """By rank and process id where the memory of a process is shown on the page."""
    figures: list[FigureView]
    moments: list[str]
    first: int
    last: int
    shown: int
    devices: list[str]
    """Of all processes, those of the one that is drawn first."""
    device: str
    tables: list[TableView]
    """One for each process."""
    notes: list[str]
    anchors: frozenset[str]
    """Culprits that have a box in the memory of any process."""
    drawn: frozenset[str]
    """Those whose box is there without a script."""
    data: dict[str, Any]


def icicle_view(
    retained: Retained | None,
    culprits: Sequence[CulpritView] = (),
    processes: int = 1,
    elsewhere: Sequence[Retained] = (),
) -> IcicleView | None:
    """Return the icicle of a run of so many processes, None where no census tells anything.

    Drawn first is the process in which the worst culprit grows, if that is one of those elsewhere.
    """
    trees = [tree for tree in (retained, *elsewhere) if tree is not None]
    if not trees:
        return None
    signs = {c.path: Mark(c.anchor, c.rank, f"culprit {c.rank}: {c.name}") for c in culprits}
    subjects = [
        Subject(
            tree,
            words.process_words(tree.process, processes),
            words.moments(tree),
            signs,
            words.notes(tree, processes, len(trees)),
        )
        for tree in trees
    ]
    lead = next((c.anchor for c in culprits if c.severity != Severity.NOTE.value), "")
    worst = max(subjects, key=lambda one: one.changed(lead))
    return _view([worst, *(one for one in subjects if one is not worst)], HELD)


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
    return _view([Subject(retained, "", moments, signs, words.doubts(retained))], GROWTH)


def _view(subjects: Sequence[Subject], mode: str) -> IcicleView:
    """Return the icicle of several processes, the first of them drawn."""
    drawn, retained = subjects[0], subjects[0].retained
    change = "Growth" if mode == HELD else "Difference"
    figures = [_held_figure(drawn), _growth_figure(drawn, change)]
    boxes = next(figure.boxes for figure in figures if figure.mode == mode)
    return IcicleView(
        key="memory",
        mode=mode,
        process=drawn.process,
        processes=[subject.process for subject in subjects],
        places={
            (one.retained.process.rank or 0, one.retained.process.pid): f"memory-of-{place}"
            for place, one in enumerate(subjects)
        },
        figures=figures,
        moments=[*drawn.moments],
        first=retained.first,
        last=retained.last,
        shown=retained.shown,
        devices=[*dict.fromkeys(device for one in subjects for device in one.devices)],
        device=drawn.device,
        tables=[table_of(subject, change) for subject in subjects],
        notes=[note for note in drawn.notes if note],
        anchors=frozenset(mark.anchor for one in subjects for mark in one.marks.values()),
        drawn=frozenset(box.mark.anchor for box in boxes if box.mark),
        data=_data(drawn, mode) | {"elsewhere": [_data(one, mode) for one in subjects[1:]]},
    )


def _held_figure(subject: Subject) -> FigureView:
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


def _growth_figure(subject: Subject, title: str) -> FigureView:
    retained = subject.retained
    first, last = subject.ends
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


def _boxes(subject: Subject, weights: Weights, whole: str, mode: str) -> list[BoxView]:
    laid = lay_out(subject.retained.nodes, weights)
    return [_box(subject, box, whole, mode) for box in laid]


def _box(subject: Subject, box: Box, whole: str, mode: str) -> BoxView:
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


def _data(subject: Subject, mode: str) -> dict[str, Any]:
    nodes = subject.retained.nodes
    censuses = zip(subject.moments, subject.retained.censuses, strict=True)
    return {
        "mode": mode,
        "process": subject.process,
        "notes": " ".join(note for note in subject.notes if note),
        "devices": subject.devices,
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
