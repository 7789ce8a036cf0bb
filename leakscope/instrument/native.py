"""The profile of native allocations in a recording: what is live with each census, and at heights.

Sampling itself costs what ``benchmarks/native`` says, all run long. Looking at what is live takes a
millisecond or two, and at first some tens for the names of functions; with a census that is part of
what the census costs, otherwise it has a part of the budget of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leakscope.instrument.costs import Costs, Due
from leakscope.instrument.options import SessionOptions
from leakscope.instrument.policy import NATIVE_FLOOR_SECONDS, NATIVE_SHARE
from leakscope.model.boundary import Boundary
from leakscope.model.record import NativeAllocationsRecord, Record


class Profile(Protocol):
    """What :class:`leakscope.probes.NativeProfile` offers."""

    @property
    def why_not(self) -> str:
        """Why nothing is sampled."""

    def start(self) -> bool:
        """Begin to sample; return whether it could be done."""

    def stop(self) -> None:
        """Sample no more."""

    def record(
        self, boundary: int, resident: int, *, with_census: bool
    ) -> NativeAllocationsRecord | None:
        """Return what is live, where there is reason to look."""


class NativeAllocations:
    """Has native allocations sampled while a session lasts, and writes down what is live."""

    def __init__(
        self,
        profile: Profile | None,
        write: Callable[[Record], bool],
        note: Callable[[str, str], None],
        costs: Costs,
        clock: Callable[[], float],
        budget: float,
    ) -> None:
        self._profile = profile
        self._write = write
        self._note = note
        self._costs = costs
        self._clock = clock
        self._budget = budget
        self._spent = 0.0
        self._why_not = ""
        self.own_bytes = 0
        """What the samples and their names took at the latest look."""

    def start(self) -> None:
        """Begin to sample, as early as possible: what is live already has no stack."""
        if self._profile is not None and not self._profile.start():
            self._why_not = self._profile.why_not
            self._profile = None

    def at(self, boundary: Boundary, done: Due, resident: int) -> None:
        """Write down what is live at a boundary with a census, or where memory is at its highest.

        Args:
            boundary: where.
            done: what was measured there.
            resident: resident memory there.

        """
        if self._why_not:
            self._note("native-off", f"Native allocations were not sampled. {self._why_not}")
            self._why_not = ""
        if self._profile is None:
            return
        began, with_census = self._clock(), done >= Due.FOCUSED
        may_look = self._spent <= NATIVE_FLOOR_SECONDS + NATIVE_SHARE * self._budget * (
            boundary.time_s
        )
        record = self._profile.record(
            boundary.index, resident if may_look else 0, with_census=with_census
        )
        if record is not None:
            self.own_bytes = record.own_bytes
            self._write(record)
            if not record.is_on:
                self.stop()
                ended = "Sampling of native allocations has ended: it failed, or another tool came."
                self._note("native-fault", ended)
        seconds = self._clock() - began
        self._costs.spend("native", seconds)
        self._spent += 0.0 if with_census else seconds

    def stop(self) -> None:
        """Sample no more."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None


def chosen_profile(options: SessionOptions, project_root: str) -> Profile | None:
    """Return the profile that a user's options ask for."""
    if options.native == "off":
        return None
    from leakscope.probes import NativeProfile

    return NativeProfile(interval=options.native_interval, project_root=project_root)
