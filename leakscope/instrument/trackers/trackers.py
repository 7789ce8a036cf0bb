"""Logs at boundaries that are recorded anyway, into what the program itself has open."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leakscope.instrument.costs import Costs
from leakscope.instrument.frameworks.figures import PREFIX
from leakscope.instrument.growth import GrowthWatch
from leakscope.instrument.guard import Guard, describe
from leakscope.instrument.options import ALL_OF_THIS_MACHINE, SessionOptions
from leakscope.instrument.trackers.figures import Rates, memory_of, named
from leakscope.instrument.trackers.mlflow import MLflow
from leakscope.instrument.trackers.tensorboard import TensorBoard
from leakscope.instrument.trackers.tracker import Place, Told, Tracker
from leakscope.instrument.trackers.wandb import WandB
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.interrupts import ours

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY_SECONDS = 1.0
SHARE = 0.2
"""Part of the budget that logging may cost."""
LOOKS_AGAIN_SHARE = 0.05
"""Where nothing is open a look is all cost: their number grows with the logarithm of time."""
MOST_SECONDS = 2.0
"""A tracker that keeps the training waiting longer gets no more figures."""
_CULPRITS = 5


class Trackers:
    """The trackers of a session: those asked for, or all whose run stays on this machine."""

    def __init__(
        self,
        options: SessionOptions,
        guard: Guard,
        costs: Costs,
        note: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._asked = options.trackers.split(",")
        self._reports = options.report
        self._share = options.budget * SHARE
        self._guard, self._costs, self._note, self._clock = guard, costs, note, clock
        known: tuple[Tracker, ...] = (TensorBoard(), WandB(), MLflow())
        takes_all = ALL_OF_THIS_MACHINE in self._asked
        self._trackers = [one for one in known if takes_all or one.name in self._asked]
        self._next: dict[str, float] = {}
        self._logged: set[str] = set()
        self._rates = Rates()
        self._step = 0
        self.leaves_memory = False
        """Whether somebody else draws memory already, so that only growth is told."""
        self.ahead = 0
        """How many steps more are recorded than the training that goes on counts itself."""

    def at(self, boundary: Boundary, gauges: Mapping[str, int], growth: GrowthWatch) -> None:
        """Log what was just recorded, where the last log has been paid for."""
        is_last = boundary.kind is BoundaryKind.RUN_END
        due = [one for one in self._trackers if self._is_due(one, boundary.time_s, is_last)]
        if not due and not is_last:
            return
        began = self._clock()
        self._step = max(0, boundary.step)
        figures = {} if self.leaves_memory else memory_of(gauges)
        figures |= self._rates.at(self._step, growth)
        for tracker in due if figures else ():
            part = f"tracker {tracker.name}"
            self._guard.call(part, None, self._log, tracker, figures, boundary.time_s)
        self._costs.spend("trackers", self._clock() - began)
        if is_last:
            self._tell_of_absent()
            self._tell_of_closed()

    @property
    def has_places(self) -> bool:
        """Whether a report would find a tracker to keep it."""
        return any(self._places(lambda _: None))

    def keep(self, run_path: Path) -> list[str]:
        """Have the trackers keep the report of a run; return what went wrong, as sentences."""
        wrong: list[str] = []
        try:
            told = self._told(run_path)
        except ours(OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            return [f"no tracker keeps the report: {describe(fault)}"]
        for name, place in self._places(wrong.append):
            with _contained(name, wrong.append):
                place.keep(told)
        return wrong

    def _is_due(self, tracker: Tracker, now: float, is_last: bool) -> bool:
        if is_last:
            return not tracker.logs_rows
        return now >= self._next.get(tracker.name, 0.0)

    def _log(self, tracker: Tracker, figures: Mapping[str, float], now: float) -> None:
        began = self._clock()
        place = tracker.place()
        has_place = place is not None and self._may_log(tracker, place)
        if place is not None and has_place:
            place.log(figures, self._drawn_step)
        spent = self._clock() - began
        # The first time a tracker sets itself up, which is paid once.
        is_first = has_place and tracker.name not in self._logged
        pause = 0.0 if is_first else spent / self._share
        patience = 0.0 if has_place else now * LOOKS_AGAIN_SHARE
        self._next[tracker.name] = now + max(EVERY_SECONDS, pause, patience)
        if has_place:
            self._logged.add(tracker.name)
        if spent > MOST_SECONDS:
            self._trackers.remove(tracker)
            self._note(
                "tracker-slow",
                f"{tracker.name} kept the training waiting for {spent:.1f} s: it was told no more.",
            )

    def _may_log(self, tracker: Tracker, place: Place) -> bool:
        return tracker.name in self._asked or place.is_local

    def _places(self, say: Callable[[str], None]) -> Iterator[tuple[str, Place]]:
        for tracker in tuple(self._trackers):
            with _contained(tracker.name, say):
                place = tracker.place()
                if place is not None and self._may_log(tracker, place):
                    yield tracker.name, place

    def _told(self, run_path: Path) -> Told:
        told = json.loads((run_path / "report.json").read_text(encoding="utf-8"))
        culprits = told["culprits"][:_CULPRITS]
        return Told(
            page=run_path / "report.html",
            verdict=str(told["verdict"]),
            sentence=str(told["headline"]),
            rates={
                f"{PREFIX}culprits/{named(one['name'])}_kib_per_{named(one['unit'])}": round(
                    one["bytes_per_unit"] / 1024, 3
                )
                for one in culprits
            },
            step=self._drawn_step,
        )

    @property
    def _drawn_step(self) -> int:
        return max(0, self._step - self.ahead)

    def _tell_of_absent(self) -> None:
        asked = {tracker.name for tracker in self._trackers} & set(self._asked)
        for name in sorted(asked - self._logged):
            self._note(
                "tracker-absent",
                f"{name} was asked for, but the program had no run of it open where memory was "
                "recorded, so nothing was logged there.",
            )

    def _tell_of_closed(self) -> None:
        for tracker in self._trackers if self._reports else ():
            if tracker.name not in self._logged:
                continue
            if self._guard.call(f"tracker {tracker.name}", False, _is_closed, tracker):
                self._note(
                    "tracker-closed",
                    f"{tracker.name} keeps neither the report nor the culprits' rates: what the "
                    "program had open there was closed before recording ended.",
                )


def _is_closed(tracker: Tracker) -> bool:
    return tracker.place() is None


@contextmanager
def _contained(name: str, say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except ours(Exception) as fault:
        say(f"{name} keeps no report: {describe(fault)}")
