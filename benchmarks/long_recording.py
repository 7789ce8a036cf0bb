"""A long recording made of a short real one: its epochs repeated, growth carried on.

Everything in it was recorded once: the boundaries, their gauges and their censuses. A copy of the
epochs differs from the one before by where training stands and by what an epoch adds to each
figure, read off where training phases begin. It is written as a run is, by the public writer.

    python benchmarks/long_recording.py RUN TARGET [--boundaries 100000] [--censuses 300]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census
from leakscope.model.record import BoundaryRecord, CensusRecord, EndRecord, SourceRecord
from leakscope.model.run import Measurement, Recording, Run
from leakscope.recording import RecordingWriter, RunDirectory, open_run

_NAMED_BY = ("path", "type")
"""What tells which entry of a list is the same as in another census."""


def stretch(source: Path, target: Path, *, boundaries: int, censuses: int) -> Path:
    """Write a run of at least so many recorded boundaries and so many censuses.

    Args:
        source: A run of several epochs, each begun by the same phase.
        target: The run directory to make; a former run there is replaced.
        boundaries: How many boundaries to record, rounded up to whole copies of the epochs.
        censuses: How many of the copied censuses to keep, spread evenly over time and places.

    Returns:
        The run directory.

    Raises:
        ValueError: the run has too few epochs to carry on, or too few censuses.

    """
    run = open_run(source)
    recording = run.main
    cycle = _Cycle.of(recording)
    copies = -(-boundaries // len(cycle.measurements))
    kept = _spread(censuses, copies, cycle.places)
    manifest = msgspec.structs.replace(run.manifest, **_roomier(run, copies))
    directory = RunDirectory.create(target, manifest, force=True)
    writer = RecordingWriter(directory.path, recording.header)
    for path, text in recording.sources.items():
        writer.write(SourceRecord(path=path, text=text))
    for copy in range(copies):
        for measurement in cycle.told_again(copy, kept.get(copy, set())):
            _write(writer, measurement)
    _finish(writer, recording, cycle, copies)
    return directory.path


def carried_on(value: Any, first: Any, last: Any, times: float) -> Any:
    """Return a figure, or all figures in a mapping or a list, raised by ``times`` last less first.

    Text, absent partners and entries without a name stay as they are; nothing falls below zero.
    """
    if isinstance(value, bool) or first is None or last is None:
        return value
    if isinstance(value, (int, float)):
        return max(type(value)(0), type(value)(value + times * (last - first)))
    if isinstance(value, dict):
        return {k: carried_on(v, first.get(k), last.get(k), times) for k, v in value.items()}
    if isinstance(value, list):
        single, other = _by_name(first), _by_name(last)
        names = [_name(entry) for entry in value]
        return [
            carried_on(entry, single.get(name), other.get(name), times)
            for entry, name in zip(value, names, strict=True)
        ]
    return value


@dataclass(frozen=True)
class _Cycle:
    """The epochs that are repeated, and what one repetition adds."""

    measurements: list[Measurement]
    first: Measurement
    last: Measurement
    """Two beginnings of training with a census: between them the growth is read off."""
    epochs: int
    steps: int
    indices: int
    seconds: float
    occurrences: dict[str, int]

    @classmethod
    def of(cls, recording: Recording) -> _Cycle:
        """Take all epochs but the first, in which a program warms up."""
        begins = [
            position
            for position, m in enumerate(recording.measurements)
            if m.boundary.kind is BoundaryKind.PHASE_BEGIN
            and m.boundary.phase == "train"
            and m.boundary.epoch > 0
        ]
        anchors = [m for m in map(recording.measurements.__getitem__, begins) if m.census]
        if len(begins) < 3 or len(anchors) < 2:
            raise ValueError("The run needs four epochs, two of them with a census at the start.")
        chosen = recording.measurements[begins[0] : begins[-1]]
        start, end = chosen[0].boundary, recording.measurements[begins[-1]].boundary
        begun = Counter(m.boundary.phase for m in chosen if _begins(m.boundary))
        return cls(
            measurements=chosen,
            first=anchors[0],
            last=anchors[-1],
            epochs=end.epoch - start.epoch,
            steps=end.step - start.step,
            indices=end.index - start.index,
            seconds=end.time_s - start.time_s,
            occurrences=begun,
        )

    @property
    def places(self) -> list[int]:
        """Positions of the measurements that have a census."""
        return [position for position, m in enumerate(self.measurements) if m.census]

    def told_again(self, copy: int, with_census: set[int]) -> Iterator[Measurement]:
        """Yield the measurements of one copy, censuses at the given positions alone."""
        between = self.last.boundary.epoch - self.first.boundary.epoch
        times = copy * self.epochs / between
        for position, m in enumerate(self.measurements):
            gauges = carried_on(m.gauges, self.first.gauges, self.last.gauges, times)
            census = self._census(m, times) if position in with_census else None
            yield Measurement(self._moved(m.boundary, copy), gauges, census)

    def _moved(self, boundary: Boundary, copy: int) -> Boundary:
        start = self.measurements[0].boundary
        return msgspec.structs.replace(
            boundary,
            index=boundary.index - start.index + 1 + copy * self.indices,
            time_s=boundary.time_s - start.time_s + copy * self.seconds,
            epoch=boundary.epoch - start.epoch + copy * self.epochs,
            step=boundary.step - start.step + copy * self.steps,
            occurrence=boundary.occurrence + copy * self.occurrences.get(boundary.phase, 0),
        )

    def _census(self, measurement: Measurement, times: float) -> Census:
        single, first, last = map(
            msgspec.to_builtins, (measurement.census, self.first.census, self.last.census)
        )
        return msgspec.convert(carried_on(single, first, last, times), Census)


def _begins(boundary: Boundary) -> bool:
    return boundary.kind is BoundaryKind.PHASE_BEGIN


def _name(entry: Any) -> str:
    if not isinstance(entry, dict):
        return ""
    return next((str(entry[key]) for key in _NAMED_BY if entry.get(key)), "")


def _by_name(entries: list[Any]) -> dict[str, Any]:
    return {name: entry for entry in entries if (name := _name(entry))}


def _spread(censuses: int, copies: int, places: list[int]) -> dict[int, set[int]]:
    """Return which places keep their census in each copy: in turn, evenly over the copies."""
    if censuses > copies * len(places):
        raise ValueError(
            f"The run has {len(places)} censuses in its epochs: too few for {censuses}."
        )
    kept: dict[int, set[int]] = {}
    for number in range(censuses):
        copy = number * copies // censuses
        kept.setdefault(copy, set()).add(places[number % len(places)])
    return kept


def _roomier(run: Run, copies: int) -> dict[str, int]:
    """A machine with room for all that grows: else the run would have ended long before."""
    limits = {
        "memory_total": run.manifest.memory_total,
        "memory_limit": run.manifest.memory_limit,
    }
    return {name: limit * copies for name, limit in limits.items() if limit}


def _write(writer: RecordingWriter, measurement: Measurement) -> None:
    index = measurement.boundary.index
    if measurement.census is not None:
        writer.write(CensusRecord(boundary=index, census=measurement.census))
    writer.write(BoundaryRecord(boundary=measurement.boundary, gauges=measurement.gauges))


def _finish(writer: RecordingWriter, recording: Recording, cycle: _Cycle, copies: int) -> None:
    seconds = cycle.seconds * copies
    for record in (*recording.allocations, recording.overhead):
        if record is not None:
            writer.write(record)
    writer.write(EndRecord(status="completed", time_s=seconds))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--boundaries", type=int, default=100_000)
    parser.add_argument("--censuses", type=int, default=300)
    chosen = parser.parse_args()
    sizes = {"boundaries": chosen.boundaries, "censuses": chosen.censuses}
    print(stretch(chosen.run, chosen.target, **sizes))


if __name__ == "__main__":
    main()
