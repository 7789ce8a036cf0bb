"""What the program was doing at each entry of a trace: forward, backward, optimizer, loading.

Torch marks optimizer steps, ``zero_grad``, DataLoader iterations and compilation by itself, on the
clock of the trace; elsewhere the stack of an allocation tells. Where neither does, what went on
before goes on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.analysis.cuda.replay import ALLOC, SEGMENT_ALLOC, SEGMENT_MAP, Replay
from leakscope.analysis.cuda.stack_kinds import kind_of
from leakscope.model.allocator import Annotation, Entry
from leakscope.model.explanation import BlockClass, PhaseRow

STEP = "Optimizer.step"
_MARKS = (
    (STEP, "optimizer"),
    ("Optimizer.zero_grad", "zero_grad"),
    ("enumerate(DataLoader)", "data loading"),
)
_COMPILING = ("(dynamo_timed)", "CachingAutotuner", "pad_mm_benchmark")
_TELLING = {
    BlockClass.ACTIVATIONS: "forward",
    BlockClass.BACKWARD: "backward",
    BlockClass.OPTIMIZER: "optimizer",
}
OTHER = "other"
DEEPEST = 500
"""Marks nested deeper are left out: a file may begin what it never ends."""
_BY_NEED = {ALLOC, SEGMENT_ALLOC, SEGMENT_MAP}
"""Entries whose stack is of the code that runs; a free may come from anywhere."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring entries of one phase: from the first up to, not with, the last."""

    phase: str
    first: int
    last: int


def stretches_of(played: Replay, annotations: Sequence[Annotation]) -> list[Stretch]:
    """Return the phases of a trace, in order; they cover it without a gap."""
    marked = _Marked(annotations)
    stretches: list[Stretch] = []
    phase = OTHER
    for number, entry in enumerate(played.entries):
        now = marked.phase_at(entry) or _told_by_stack(entry) or phase
        if not stretches or now != phase:
            stretches.append(Stretch(now, number, number + 1))
        else:
            stretches[-1] = Stretch(now, stretches[-1].first, number + 1)
        phase = now
    return stretches


def phase_rows(played: Replay, stretches: Sequence[Stretch]) -> list[PhaseRow]:
    """Return memory per phase, in the order in which the phases first began."""
    return [
        _row(played, phase, [s for s in stretches if s.phase == phase])
        for phase in dict.fromkeys(stretch.phase for stretch in stretches)
    ]


def phase_at(stretches: Sequence[Stretch], entry: int) -> str:
    """Return the phase of an entry."""
    return next((s.phase for s in stretches if s.first <= entry < s.last), "")


def ends_of_steps(
    played: Replay, stretches: Sequence[Stretch], annotations: Sequence[Annotation]
) -> list[int]:
    """Return the last entry of each optimizer step, told by marks or else by stacks."""
    ends = [m.time_us for m in annotations if m.name.startswith(STEP) and not m.is_start]
    times = [entry.time_us for entry in played.entries]
    if not ends or None in times:
        return [s.last - 1 for s in stretches if s.phase == "optimizer"]
    known = [time for time in times if time is not None]
    return [bisect_right(known, end) - 1 for end in ends if known and known[0] <= end]


class _Marked:
    """Which marked stretch a moment lies in; the innermost that is known wins."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        self._times: list[int] = []
        self._phases: list[str] = []
        open_names: list[str] = []
        for mark in annotations:
            if mark.is_start and mark.name and len(open_names) < DEEPEST:
                open_names.append(mark.name)
            elif mark.name in open_names:
                del open_names[len(open_names) - 1 - open_names[::-1].index(mark.name)]
            self._times.append(mark.time_us)
            self._phases.append(_innermost(open_names))

    def phase_at(self, entry: Entry) -> str:
        if entry.time_us is None or not self._times:
            return ""
        place = bisect_right(self._times, entry.time_us) - 1
        return self._phases[place] if place >= 0 else ""


def _innermost(names: Sequence[str]) -> str:
    for name in reversed(names):
        phase = _phase_of_mark(name)
        if phase:
            return phase
    return ""


def _phase_of_mark(name: str) -> str:
    if any(part in name for part in _COMPILING):
        return "compilation"
    return next((phase for start, phase in _MARKS if name.startswith(start)), name)


def _told_by_stack(entry: Entry) -> str:
    kind = kind_of(entry.stack) if entry.action in _BY_NEED else None
    return _TELLING.get(kind, "") if kind is not None else ""


def _row(played: Replay, phase: str, inside: Sequence[Stretch]) -> PhaseRow:
    entries, live = played.entries, played.live
    times = [_seconds(entries, stretch) for stretch in inside]
    known = [seconds for seconds in times if seconds is not None]
    return PhaseRow(
        phase=phase,
        stretches=len(inside),
        allocated_bytes=sum(
            e.size for s in inside for e in entries[s.first : s.last] if e.action == ALLOC
        ),
        peak_bytes=max(max(live[s.first : s.last]) for s in inside),
        kept_bytes=sum(live[s.last - 1] - _before(played, s) for s in inside),
        seconds=sum(known) if len(known) == len(times) else None,
    )


def _before(played: Replay, stretch: Stretch) -> int:
    return played.live[stretch.first - 1] if stretch.first else played.start_live


def _seconds(entries: Sequence[Entry], stretch: Stretch) -> float | None:
    begin = entries[stretch.first].time_us
    end = entries[min(stretch.last, len(entries) - 1)].time_us
    return None if begin is None or end is None else max(0, end - begin) / 1e6
