"""What memory holds as an icicle: boxes as wide as their bytes, one below the other.

The view for the template, the same in numbers for who can't see it, and the data with which the
script redraws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from leakscope.analysis.holdings.tree import Weights, grown_weights, retained_weights
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.report import Severity
from leakscope.model.run import NodeKind, Retained, RetainedNode, RetainedProcess
from leakscope.model.text import plural
from leakscope.report.comparison.changes import ChangeView
from leakscope.report.culprits import CulpritView
from leakscope.report.tables import direction_of
from leakscope.report.text import UNKNOWN, Size, clock, humane_bytes, size_of

NOT_NAMED = "not named"
ABSENT = "nothing, or too little for a row of its own"
WHOLE = {
    CensusScope.FOCUSED: "all that your names reach",
    CensusScope.FULL: "the whole Python heap",
}
BOTH = "what both saw"
_EVENTS = {
    BoundaryKind.RUN_BEGIN: "start of the run",
    BoundaryKind.PHASE_BEGIN: "start of {phase}",
    BoundaryKind.STEP: "{phase}, step {step}",
    BoundaryKind.BATCH: "{phase}, batch {batch}",
    BoundaryKind.PHASE_END: "end of {phase}",
    BoundaryKind.EPOCH_END: "end of the epoch",
    BoundaryKind.TIME: "while it ran",
    BoundaryKind.RUN_END: "end of the run",
    BoundaryKind.REQUEST: "on request",
}
_OF_WORKER = {
    BoundaryKind.PHASE_BEGIN: "start of pass {way}",
    BoundaryKind.BATCH: "pass {way}, batch {batch}",
    BoundaryKind.PHASE_END: "end of pass {way}",
}
"""A worker has no epochs: it runs through its loader again and again."""
MAIN, THE_MAIN = "main process", "the main one"


def process_words(process: RetainedProcess, processes: int = 2) -> str:
    """Return ``rank 1, loader 1, worker 0``; empty where there is a single process."""
    rank = f"rank {process.rank}" if process.rank is not None else ""
    if process.child:
        return process.child
    if process.worker is None:
        return rank or (MAIN if processes > 1 else "")
    again = f", from pass {process.generation + 1} on" if process.generation else ""
    worker = f"loader {process.loader}, worker {process.worker}{again}"
    return f"{rank}, {worker}" if rank else worker


def event_words(boundary: Boundary, *, by_epoch: bool = True) -> str:
    """Return ``end of validation, epoch 4``; where there are no epochs, ``…, step 250``."""
    pattern = _EVENTS.get(boundary.kind, "")
    phase = boundary.phase or "the program"
    text = pattern.format(phase=phase, step=boundary.step, batch=boundary.batch)
    if not pattern:
        text = boundary.label or "mark"
    if not by_epoch and boundary.kind is not BoundaryKind.STEP:
        return f"{text}, step {boundary.step:,}"
    return f"{text}, epoch {boundary.epoch + 1}" if by_epoch and boundary.phase else text


def moments(retained: Retained, sides: Sequence[str] = ()) -> list[str]:
    """Return ``1:20 end of validation, epoch 4`` for each census; of two runs, which of them."""
    by_epoch = any(census.boundary.epoch for census in retained.censuses)
    names = sides or [clock(census.boundary.time_s) for census in retained.censuses]
    process = retained.process
    return [
        f"{name}{':' if sides else ''} {_event(census.boundary, by_epoch, process)}"
        f"{', whole heap' if census.scope is CensusScope.FULL else ''}"
        for name, census in zip(names, retained.censuses, strict=True)
    ]


def _event(boundary: Boundary, by_epoch: bool, process: RetainedProcess) -> str:
    pattern = _OF_WORKER.get(boundary.kind) if process.worker is not None else None
    if pattern is None:
        return event_words(boundary, by_epoch=by_epoch)
    way = process.generation + boundary.occurrence + 1
    return pattern.format(way=way, batch=boundary.batch)


def type_words(node: RetainedNode) -> str:
    """Return the type of a row, and whether it keeps a graph."""
    return f"{node.type}, keeps an autograd graph" if node.keeps_graph else node.type


def notes(retained: Retained, processes: int = 1, choosable: int = 1) -> list[str]:
    """Return what a reader must know of censuses of one of so many processes."""
    count, text = len(retained.censuses), ""
    if processes > 1:
        name = process_words(retained.process, processes)
        others = f"; {plural(choosable - 1, 'other')} can be chosen" if choosable > 1 else ""
        text = f"Of {processes:,} processes this is {THE_MAIN if name == MAIN else name}{others}. "
    if count < retained.taken:
        text += f"{count} of {retained.taken:,} censuses are kept, spread over the run. "
    cutoff = humane_bytes(max(census.cutoff_bytes for census in retained.censuses))
    return [f"{text}What holds less than {cutoff} has no box of its own.", *doubts(retained)]


def doubts(retained: Retained) -> list[str]:
    """Return why some figures can't be compared or are too small; empty where none is."""
    parts = []
    if len({census.scope for census in retained.censuses}) > 1:
        parts.append(
            "Some censuses walk the whole heap, others only what your names reach; between two "
            "unlike ones, what both saw is compared."
        )
    if any(census.truncated for census in retained.censuses):
        parts.append(
            "In some censuses more autograd nodes were alive than are counted: what keeps graphs "
            "held more than its box says."
        )
    return parts


LEAST_SHARE = 0.004
"""Of the width: what is narrower is put together."""
MOST_ROWS = 12
REST = "rest"


@dataclass(frozen=True)
class IcicleBox:
    """A piece of the picture. ``node`` is its own, or of what it is the rest of."""

    node: int
    kind: str
    left: float
    width: float
    row: int
    bytes: int
    changed: int
    """All that changed in it, up or down; in a picture of one census its bytes."""
    count: int = 0
    """How many nodes it stands for, where it stands for several small ones."""


def lay_out(nodes: Sequence[RetainedNode], weights: Weights) -> list[IcicleBox]:
    """Return the boxes of the whole tree, row by row and widest first."""
    whole = weights.widths[0]
    if whole <= 0:
        return []
    below: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes[1:], 1):
        below[node.parent].append(place)
    boxes = [IcicleBox(0, NodeKind.WHOLE.value, 0.0, 1.0, 0, weights.bytes[0] or 0, whole)]
    at = 0
    while at < len(boxes):
        box = boxes[at]
        if box.kind not in {REST, NodeKind.SMALLER.value} and box.row + 1 < MOST_ROWS:
            boxes += _below(box, below[box.node], nodes, weights)
        at += 1
    return boxes


def _below(
    above: IcicleBox, children: Sequence[int], nodes: Sequence[RetainedNode], weights: Weights
) -> list[IcicleBox]:
    """Return the boxes below one: its children, the small ones together, and what has no name."""
    if not children:
        return []
    scale = above.width / above.changed
    named = sorted(
        (c for c in children if nodes[c].kind is not NodeKind.SMALLER),
        key=lambda c: (-weights.widths[c], c),
    )
    shown = [c for c in named if weights.widths[c] * scale >= LEAST_SHARE]
    small = [c for c in children if c not in shown and weights.widths[c]]
    count = sum(nodes[c].count or 1 for c in small)
    net, changed = _sum(weights, children)
    parts = [
        *((c, nodes[c].kind.value, *_sum(weights, [c]), 0) for c in shown),
        (above.node, NodeKind.SMALLER.value, *_sum(weights, small), count),
        (above.node, REST, above.bytes - net, above.changed - changed, 0),
    ]
    boxes: list[IcicleBox] = []
    left = above.left
    for node, kind, size, wide, several in parts:
        width = wide * scale
        if width >= LEAST_SHARE and (boxes or kind != REST):
            boxes.append(IcicleBox(node, kind, left, width, above.row + 1, size, wide, several))
            left += width
    return boxes


def _sum(weights: Weights, places: Sequence[int]) -> tuple[int, int]:
    net = sum(weights.bytes[place] or 0 for place in places)
    return net, sum(weights.widths[place] for place in places)


@dataclass(frozen=True)
class CulpritMark:
    """A culprit that a box is of."""

    anchor: str
    """Of its card."""
    sign: str
    """A few letters for the box: its rank, or what became of it."""
    words: str
    tone: str = ""
    """What became of it, where two runs are compared."""


@dataclass(frozen=True)
class IcicleSubject:
    """A tree to draw."""

    retained: Retained
    process: str
    """Whose memory it is; empty where there is a single process."""
    moments: Sequence[str]
    signs: Mapping[str, CulpritMark]
    """By the path of a culprit."""
    notes: Sequence[str]

    @property
    def ends(self) -> tuple[int, int]:
        """The censuses between which growth is counted."""
        return self.retained.first, self.retained.last

    @cached_property
    def devices(self) -> list[str]:
        """All on which there is memory."""
        return [*dict.fromkeys(d for census in self.retained.censuses for d in census.bytes)]

    @cached_property
    def device(self) -> str:
        """The device that is shown: on which most has changed."""
        return max(
            self.devices, key=lambda d: grown_weights(self.retained, d, *self.ends).widths[0]
        )

    @cached_property
    def marks(self) -> dict[int, CulpritMark]:
        """By node the culprit that it is."""
        return {
            place: self.signs[node.path]
            for place, node in enumerate(self.retained.nodes)
            if node.kind is NodeKind.ROW and node.path in self.signs
        }

    def changed(self, anchor: str) -> int:
        """Return how much a culprit changed in this tree, on the device where it did most."""
        places = [place for place, mark in self.marks.items() if mark.anchor == anchor]
        trees = [grown_weights(self.retained, device, *self.ends).widths for device in self.devices]
        return max((widths[place] for widths in trees for place in places), default=0)


TABLE_ROWS = 30


def table_of(subject: IcicleSubject, change: str) -> SimpleNamespace:
    """Return the names that hold most, with what they held at the moments of both pictures.

    ``change`` is what the picture of growth is called.
    """
    retained, device = subject.retained, subject.device
    ends = [*subject.ends] if retained.shown == retained.last else [retained.shown, *subject.ends]
    sizes = [retained_weights(retained, device, place).bytes for place in ends]
    shown = retained_weights(retained, device, retained.shown).bytes
    first, last = sizes[-2:]
    grown = grown_weights(retained, device, *subject.ends)
    rows = [place for place, node in enumerate(retained.nodes) if node.kind is NodeKind.ROW]
    rows.sort(key=lambda p: (-max(shown[p] or 0, last[p] or 0, grown.widths[p]), p))

    def change_at(place: int) -> Size:
        if first[place] == last[place] == 0:
            return Size(UNKNOWN, f"both times {ABSENT}")
        return size_of(grown.bytes[place], signed=True)

    return SimpleNamespace(
        process=subject.process,
        columns=[*(subject.moments[place] for place in ends), change],
        rows=[
            SimpleNamespace(
                name=retained.nodes[place].name,
                sizes=[*(_size_text(size[place]) for size in sizes), change_at(place)],
                mark=subject.marks.get(place),
            )
            for place in rows[:TABLE_ROWS]
        ],
    )


def _size_text(size: int | None) -> Size:
    return Size(UNKNOWN, ABSENT) if size == 0 else size_of(size)


CONTENTS, GROWTH = "held", "growth"
_FAINT, _DEEP = 14, 46
"""Per cent of colour in a box of growth: where much shrank as well, and where all of it grew."""


def icicle_view(
    retained: Retained | None,
    culprits: Sequence[CulpritView] = (),
    processes: int = 1,
    elsewhere: Sequence[Retained] = (),
) -> SimpleNamespace | None:
    """Return the icicle of a run of so many processes, None where no census has anything.

    Drawn first is the process in which the worst culprit grows, if that is one of those elsewhere.
    """
    trees = [tree for tree in (retained, *elsewhere) if tree is not None]
    if not trees:
        return None
    signs = {
        c.subject.path: CulpritMark(
            c.anchor, str(c.subject.rank), f"culprit {c.subject.rank}: {c.name}"
        )
        for c in culprits
    }
    subjects = [
        IcicleSubject(
            tree,
            process_words(tree.process, processes),
            moments(tree),
            signs,
            notes(tree, processes, len(trees)),
        )
        for tree in trees
    ]
    anchor = next((c.anchor for c in culprits if c.severity != Severity.NOTE.value), "")
    worst = max(subjects, key=lambda subject: subject.changed(anchor))
    return _view([worst, *(subject for subject in subjects if subject is not worst)], CONTENTS)


def comparison_icicle(
    retained: Retained | None, changes: Sequence[ChangeView] = ()
) -> SimpleNamespace | None:
    """Return the icicle of what differs between two runs, None where either has none."""
    if retained is None:
        return None
    moments_ = moments(retained, ("Before", "After"))
    signs = {
        c.subject.path: CulpritMark(c.anchor, c.label, f"{c.label}: {c.subject.name}", c.change)
        for c in changes
        if c.subject.path
    }
    return _view([IcicleSubject(retained, "", moments_, signs, doubts(retained))], GROWTH)


def _view(subjects: Sequence[IcicleSubject], mode: str) -> SimpleNamespace:
    """Return the icicle of several processes, the first of them drawn."""
    drawn, retained = subjects[0], subjects[0].retained
    change = "Growth" if mode == CONTENTS else "Difference"
    figures = _figures(drawn, change)
    boxes = next(figure.boxes for figure in figures if figure.mode == mode)
    return SimpleNamespace(
        key="memory",
        mode=mode,
        process=drawn.process,
        processes=[subject.process for subject in subjects],
        places={
            (item.retained.process.rank or 0, item.retained.process.pid): f"memory-of-{place}"
            for place, item in enumerate(subjects)
        },
        figures=figures,
        retained=retained,
        moments=[*drawn.moments],
        devices=[*dict.fromkeys(device for item in subjects for device in item.devices)],
        device=drawn.device,
        tables=[table_of(subject, change) for subject in subjects],
        notes=[note for note in drawn.notes if note],
        anchors=frozenset(mark.anchor for item in subjects for mark in item.marks.values()),
        drawn=frozenset(box.mark.anchor for box in boxes if box.mark),
        data=_data(drawn, mode) | {"elsewhere": [_data(item, mode) for item in subjects[1:]]},
    )


def _figures(subject: IcicleSubject, change: str) -> list[SimpleNamespace]:
    """Return the picture of what is shown, and that of the growth."""
    retained, device, (first, last) = subject.retained, subject.device, subject.ends
    shown, moments = retained.shown, subject.moments
    wholes = [WHOLE[census.scope] for census in retained.censuses]
    size = retained_weights(retained, device, shown)
    grown = grown_weights(retained, device, first, last)
    both = wholes[first] if wholes[first] == wholes[last] else BOTH
    span = f"{moments[first]} → {moments[last]}"
    return [
        _figure(subject, size, CONTENTS, "Held", moments[shown], wholes[shown]),
        _figure(subject, grown, GROWTH, change, span, both),
    ]


def _figure(
    subject: IcicleSubject, weights: Weights, mode: str, title: str, moment: str, whole: str
) -> SimpleNamespace:
    boxes = [_box(subject, box, whole, mode) for box in lay_out(subject.retained.nodes, weights)]
    return SimpleNamespace(
        mode=mode,
        title=title,
        moment=moment,
        total=size_of(weights.bytes[0], signed=mode == GROWTH),
        rows=1 + max((box.row for box in boxes), default=0),
        boxes=boxes,
    )


def _box(subject: IcicleSubject, box: IcicleBox, whole: str, mode: str) -> SimpleNamespace:
    node = subject.retained.nodes[box.node]
    size = size_of(box.bytes, signed=mode == GROWTH)
    label = {
        REST: NOT_NAMED,
        NodeKind.SMALLER.value: plural(box.count, "smaller one"),
        NodeKind.WHOLE.value: whole,
    }.get(box.kind, node.label)
    own = box.kind == node.kind.value
    return SimpleNamespace(
        kind=box.kind,
        direction=(direction_of(box.bytes) or "even") if mode == GROWTH else "",
        left=f"{100 * box.left:.3f}%",
        width=f"{100 * box.width:.3f}%",
        row=box.row,
        tint=f"{_FAINT + (_DEEP - _FAINT) * abs(box.bytes) / max(box.changed, 1):.0f}%",
        label=label,
        type=type_words(node).rpartition(".")[2] if own else "",
        title=f"{(own and node.name) or label}: {size.text} ({size.exact})",
        size=size,
        mark=subject.marks.get(box.node) if own else None,
    )


def _data(subject: IcicleSubject, mode: str) -> dict[str, Any]:
    nodes = subject.retained.nodes
    censuses = zip(subject.moments, subject.retained.censuses, strict=True)
    return {
        "mode": mode,
        "process": subject.process,
        "notes": " ".join(note for note in subject.notes if note),
        "devices": subject.devices,
        "parents": [node.parent for node in nodes],
        "kinds": [node.kind.value for node in nodes],
        "labels": [
            plural(node.count, "smaller one") if node.kind is NodeKind.SMALLER else node.label
            for node in nodes
        ],
        "names": [node.name for node in nodes],
        "types": [type_words(node) for node in nodes],
        "counts": [node.count for node in nodes],
        "marks": {str(p): [m.anchor, m.sign, m.words, m.tone] for p, m in subject.marks.items()},
        "first": subject.retained.first,
        "last": subject.retained.last,
        "shown": subject.retained.shown,
        "device": subject.device,
        "words": {"rest": NOT_NAMED, "both": BOTH},
        "censuses": [
            {
                "moment": moment,
                "whole": WHOLE[census.scope],
                "scope": census.scope.value,
                "bytes": census.bytes,
            }
            for moment, census in censuses
        ],
    }
