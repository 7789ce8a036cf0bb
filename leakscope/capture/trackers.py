"""Experiment trackers: memory alongside the loss, in the runs that the program has open. None
is ever imported here. Clients of Prometheus and OpenTelemetry: the same for what watches services.

In Weights & Biases a row of a run's history has one step, which only rises. What is logged without
being committed waits for the program's next log and goes into that row, so the program's rows and
steps stay as they are.

For TensorBoard, torch keeps no list of its ``SummaryWriter``s, so it is looked for among what
refers to the class.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import Guard, describe
from leakscope.capture.options import SessionOptions
from leakscope.capture.schedule import GrowthWatch
from leakscope.cleanup.levels import device_levels, resident
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.errors import ours
from leakscope.recording.directory import read_live


@dataclass(frozen=True)
class ReportSummary:
    """What a report says in the end, for a tracker to keep."""

    page: Path
    """``report.html``."""
    verdict: str
    sentence: str
    rates: Mapping[str, float]
    """Of each culprit, by the name under which it is drawn."""
    step: int


class WandB:
    """The module ``wandb``."""

    name = "wandb"
    logs_rows = True

    def place(self) -> WandBRun | None:
        """Return the run that is open, unless it takes its figures from TensorBoard's files."""
        library = sys.modules.get(self.name)
        run = getattr(library, "run", None)
        if run is None or run.disabled or takes_from_tensorboard():
            return None
        return WandBRun(library, run)


class WandBRun:
    """A run of Weights & Biases."""

    def __init__(self, library: Any, run: Any) -> None:
        self._library = library
        self._run = run

    @property
    def is_local(self) -> bool:
        """Whether it is written down only, to be sent when the user says so."""
        return bool(self._run.offline)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Add figures to the program's next row."""
        self._run.log(dict(figures), commit=False)

    def keep(self, summary: ReportSummary) -> None:
        """Log the report as an artifact; verdict and rates go into the summary."""
        verdict = {"leakscope/verdict": summary.verdict, "leakscope/headline": summary.sentence}
        self._run.summary.update({**verdict, **summary.rates})
        artifact = self._library.Artifact(f"leakscope-{self._run.id}", type="leakscope-report")
        artifact.add_file(str(summary.page), name=summary.page.name)
        self._run.log_artifact(artifact)


def takes_from_tensorboard() -> bool:
    """Return whether wandb sends on what is written to TensorBoard (``sync_tensorboard=True``)."""
    patched = getattr(sys.modules.get("wandb"), "patched", None)
    return bool(patched and patched.get("tensorboard"))


_FOLDER = "leakscope"
_HERE = ("", "file", "sqlite")


class MLflow:
    """MLflow's metrics have a step each, so nothing of ours touches the program's."""

    name = "mlflow"
    logs_rows = False

    def place(self) -> MLflowRun | None:
        """Return the active run."""
        library = sys.modules.get(self.name)
        active_run = getattr(library, "active_run", None)
        run = None if active_run is None else active_run()
        return None if run is None else MLflowRun(library, run.info)


class MLflowRun:
    """A run of MLflow's."""

    def __init__(self, library: Any, info: Any) -> None:
        self._library = library
        self._info = info

    @property
    def is_local(self) -> bool:
        """Whether metrics and files go into a folder or a database file of this machine."""
        stores = (self._library.get_tracking_uri(), self._info.artifact_uri)
        return all(
            urlsplit(str(store)).scheme in _HERE and not str(store).startswith("databricks")
            for store in stores
        )

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log metrics in one request."""
        now, metric = int(time.time() * 1000), self._library.entities.Metric
        metrics = [metric(name, figure, now, step) for name, figure in figures.items()]
        self._client.log_batch(self._info.run_id, metrics=metrics)

    def keep(self, summary: ReportSummary) -> None:
        """Log the report as an artifact, the rates as metrics, the verdict as a tag."""
        client, run = self._client, self._info.run_id
        if summary.rates:
            self.log(summary.rates, summary.step)
        client.set_tag(run, "leakscope.verdict", summary.verdict)
        client.set_tag(run, "leakscope.headline", summary.sentence)
        client.log_artifact(run, str(summary.page), _FOLDER)

    @property
    def _client(self) -> Any:
        return self._library.MlflowClient()


_MODULE = "torch.utils.tensorboard.writer"


class TensorBoard:
    """torch's ``SummaryWriter``; of several the one whose folder comes first by name."""

    name = "tensorboard"
    logs_rows = False

    def __init__(self) -> None:
        self._found: weakref.ref[Any] | None = None

    def place(self) -> TensorBoardWriter | None:
        """Return a writer that is open: one that was closed would open itself again."""
        writer = None if self._found is None else self._found()
        if writer is None or not _is_open(writer):
            writer = _first_open()
            self._found = None if writer is None else weakref.ref(writer)
        return None if writer is None else TensorBoardWriter(writer)


class TensorBoardWriter:
    """A writer of the program's."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    @property
    def is_local(self) -> bool:
        """Whether its files lie in a folder, and nobody sends them on."""
        folder = str(self._writer.log_dir)
        return "://" not in folder and not takes_from_tensorboard()

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Add scalars; each has steps of its own."""
        for name, figure in figures.items():
            self._writer.add_scalar(name, figure, global_step=step)

    def keep(self, summary: ReportSummary) -> None:
        """Add the verdict as a text and the rates as scalars: TensorBoard keeps no files."""
        self.log(summary.rates, summary.step)
        text = f"**{summary.verdict}** · {summary.sentence}\n\n`{summary.page}`"
        self._writer.add_text("leakscope/report", text, global_step=summary.step)
        self._writer.flush()


def _first_open() -> Any:
    module = sys.modules.get(_MODULE)
    kind = getattr(module, "SummaryWriter", None)
    if not isinstance(kind, type):
        return None
    referring = gc.get_referrers(kind, *kind.__subclasses__())
    writers = [found for found in referring if issubclass(type(found), kind) and _is_open(found)]
    return min(writers, key=lambda writer: str(writer.log_dir), default=None)


def _is_open(writer: Any) -> bool:
    return getattr(writer, "all_writers", None) is not None


TrackedRun: TypeAlias = WandBRun | MLflowRun | TensorBoardWriter
"""A run or a writer that the program has open now."""
Tracker: TypeAlias = WandB | MLflow | TensorBoard
"""A library that draws what programs log; the last of one that ``logs_rows`` come at the end."""

PREFIX = "leakscope/"
_MIB, _KIB = 1 << 20, 1 << 10


def memory_figures() -> dict[str, float]:
    """Return resident memory of this process, and what is live and reserved per device, in MiB."""
    figures = {f"{PREFIX}host_mib": resident() / _MIB}
    for device, level in device_levels().items():
        figures[f"{PREFIX}{device}_allocated_mib"] = level.allocated / _MIB
        figures[f"{PREFIX}{device}_reserved_mib"] = level.reserved / _MIB
    return {name: round(figure, 3) for name, figure in figures.items()}


_MEMORY = {gauge.RSS: "host_mib", gauge.CHILDREN_PSS: "children_mib"}
_OF_DEVICES = (gauge.DEVICE_ALLOCATED, gauge.DEVICE_RESERVED)
GROWING_AT_ONCE = 5
NAMES = 20
"""So many growing things have a chart in one run."""
_LONGEST_NAME = 80
_MOST_OF_THE_GROWTH = 0.7
"""A container that carries so much of its owner's growth is drawn instead of the owner."""


def memory_of(gauges: Mapping[str, int]) -> dict[str, float]:
    """Return resident memory, that of child processes, and what each device has, in MiB."""
    found = {short: gauges[name] for name, short in _MEMORY.items() if gauges.get(name)}
    for name, size in gauges.items():
        device, _, what = name.rpartition(".")
        if device and what in _OF_DEVICES:
            found[f"{device}_{what}_mib"] = size
    return {f"{PREFIX}{name}": round(size / _MIB, 3) for name, size in found.items()}


def named(path: str) -> str:
    """Return a name as every tracker takes it: letters, digits, ``_``, ``-`` and ``.``."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]+", "_", path.removeprefix("__main__·"))
    return plain[-_LONGEST_NAME:].strip("_.") or "unnamed"


class Rising(NamedTuple):
    """Where something was first seen to grow."""

    place: object
    size: int
    step: int


class Rates:
    """How fast grows what rises at each of the latest looks, since it was first seen to."""

    def __init__(self) -> None:
        self._first: dict[str, Rising] = {}

    def at(self, step: int, growth: GrowthWatch) -> dict[str, float]:
        """Return KiB per step of the fastest, by the name under which each is drawn."""
        place, sizes = growth.growing()
        risen = {path: self._risen(path, place, size, step) for path, size in sizes.items()}
        rates = {
            f"{PREFIX}growing/{named(path)}_kib_per_step": round(
                risen[path] / _KIB / (step - self._first[path].step), 3
            )
            for path in _innermost({path: rise for path, rise in risen.items() if rise > 0})
        }
        fastest = sorted(rates, key=lambda name: -rates[name])[:GROWING_AT_ONCE]
        return {name: rates[name] for name in fastest}

    def _risen(self, path: str, place: object, size: int, step: int) -> int:
        first = self._first.get(path)
        if first is None and len(self._first) < NAMES:
            first = self._first[path] = Rising(place, size, step)
        return 0 if first is None or first.place != place or step <= first.step else size - first[1]


def _innermost(risen: Mapping[str, int]) -> list[str]:
    """Return the containers that grow: neither their owners nor their elements."""
    chosen: list[str] = []
    for path in sorted(risen, key=len):
        owners = [owner for owner in chosen if path.startswith(owner)]
        if any(path[len(owner) :].startswith("[*]") for owner in owners):
            continue
        for owner in owners:
            if risen[path] >= _MOST_OF_THE_GROWTH * risen[owner]:
                chosen.remove(owner)
        chosen.append(path)
    return chosen


class Reading(NamedTuple):
    """One value of a metric."""

    metric: str
    """One of :data:`METRICS`."""
    value: float
    labels: Mapping[str, str]


METRICS = {
    "memory": ("By", "Memory of the process, of its child processes, and of each device."),
    "growing": ("By", "What a container holds that rose at each of the latest looks: no verdict."),
    "leak": ("By", "What leaks by the latest verdict, in bytes per unit of work."),
    "leak_full_in": ("s", "How long memory lasts if what leaks goes on."),
}
"""Unit and meaning of what is exported, by name."""


class Prometheus:
    """The default registry of ``prometheus_client``, which the program serves."""

    name = "prometheus"

    def __init__(self) -> None:
        self._readings: Callable[[], Sequence[Reading]] | None = None

    def follow(self, readings: Callable[[], Sequence[Reading]]) -> bool:
        """Register as a collector."""
        library = sys.modules.get("prometheus_client")
        if library is None:
            return False
        self._readings = readings
        library.REGISTRY.register(self)
        return True

    def leave(self) -> None:
        """Leave the registry."""
        self._readings = None
        with suppress(Exception):
            sys.modules["prometheus_client"].REGISTRY.unregister(self)

    def describe(self) -> list[Any]:
        """Return no names: the registry is not to ask for readings yet."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, as the registry asks for them."""
        readings = [] if self._readings is None else self._readings()
        family = sys.modules["prometheus_client"].metrics_core.GaugeMetricFamily
        for metric, (unit, meaning) in METRICS.items():
            mine = [reading for reading in readings if reading.metric == metric]
            if not mine:
                continue
            ending = {"By": "bytes", "s": "seconds"}[unit]
            gauges = family(f"leakscope_{metric}_{ending}", meaning, labels=[*mine[0].labels])
            for reading in mine:
                gauges.add_metric([*reading.labels.values()], reading.value)
            yield gauges


class OpenTelemetry:
    """The meter provider that the program has set."""

    name = "opentelemetry"

    def __init__(self) -> None:
        self._readings: Callable[[], Sequence[Reading]] | None = None

    def follow(self, readings: Callable[[], Sequence[Reading]]) -> bool:
        """Make observable gauges, which ask for readings whenever metrics are exported."""
        library = sys.modules.get("opentelemetry.metrics")
        if library is None or "opentelemetry.sdk.metrics" not in sys.modules:
            return False
        self._readings = readings
        meter = library.get_meter("leakscope")
        for metric, (unit, meaning) in METRICS.items():
            meter.create_observable_gauge(
                f"leakscope.{metric}",
                callbacks=[self._observer(library.Observation, metric)],
                unit=unit,
                description=meaning,
            )
        return True

    def leave(self) -> None:
        """Have the gauges tell nothing more: no client takes them back."""
        self._readings = None

    def _observer(self, kind: Any, metric: str) -> Callable[[Any], list[Any]]:
        def observe(_: Any) -> list[Any]:
            readings = [] if self._readings is None else self._readings()
            return [kind(r.value, dict(r.labels)) for r in readings if r.metric == metric]

        return observe


Meter: TypeAlias = Prometheus | OpenTelemetry


class Meters:
    """The clients of monitoring systems that a session was asked to tell."""

    def __init__(self, requested: Sequence[str], run_path: Callable[[], Path], guard: Guard):
        known: tuple[Meter, ...] = (Prometheus(), OpenTelemetry())
        self._waiting = [meter for meter in known if meter.name in requested]
        self._followed: list[Meter] = []
        self._run_path, self._guard = run_path, guard
        self._memory: list[Reading] = []
        self._next_look = 0.0

    def at(self, now: float, gauges: Mapping[str, int], growth: GrowthWatch, *, last: bool) -> None:
        """Take down what was just recorded, for whoever asks; leave at the end."""
        if not (self._waiting or self._followed):
            return
        if last:
            for meter in self._followed:
                self._guard.call(f"meter {meter.name}", None, meter.leave)
            self._followed.clear()
            return
        sizes = {named(path): float(size) for path, size in growth.growing()[1].items()}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:GROWING_AT_ONCE]
        self._memory = [
            *(
                Reading("memory", mib * _MIB, {"of": name[len(PREFIX) : -len("_mib")]})
                for name, mib in memory_of(gauges).items()
            ),
            *(Reading("growing", sizes[name], {"name": name}) for name in largest),
        ]
        if now >= self._next_look:
            self._next_look = now + max(EVERY_SECONDS, LOOKS_AGAIN_SHARE * now)
            for meter in tuple(self._waiting):
                if self._guard.call(f"meter {meter.name}", False, meter.follow, self.readings):
                    self._waiting.remove(meter)
                    self._followed.append(meter)

    @property
    def absent(self) -> list[str]:
        """Those of which the program has no client."""
        return [meter.name for meter in self._waiting]

    def readings(self) -> list[Reading]:
        """Return the latest readings, with what leaks by now where something judges the run."""
        leak = read_live(self._run_path())
        if leak is None:
            return self._memory
        labels = {"name": leak.name, "place": leak.place, "unit": leak.unit}
        found = [*self._memory, Reading("leak", leak.bytes_per_unit, labels)]
        if leak.full_at is not None:
            left = max(0.0, leak.full_at - time.time())
            found.append(Reading("leak_full_in", left, {"name": leak.name}))
        return found


EVERY_SECONDS = 1.0
SHARE = 0.2
"""Part of the budget that logging may cost."""
LOOKS_AGAIN_SHARE = 0.05
"""Where nothing is open a look is all cost: their number grows with the logarithm of time."""
MOST_SECONDS = 2.0
"""A tracker that keeps the training waiting longer gets no more figures."""
_CULPRITS = 5


class Trackers:
    """The trackers of a session: those requested, or all whose run stays on this machine."""

    def __init__(
        self,
        options: SessionOptions,
        guard: Guard,
        costs: Costs,
        note: Callable[[str, str], None],
        clock: Callable[[], float],
        run_path: Callable[[], Path] = Path,
    ) -> None:
        self._requested = options.trackers.split(",")
        self._reports = options.report
        self._share = options.budget * SHARE
        self._guard, self._costs, self._note, self._clock = guard, costs, note, clock
        known: tuple[Tracker, ...] = (TensorBoard(), WandB(), MLflow())
        takes_all = "auto" in self._requested
        self._trackers = [each for each in known if takes_all or each.name in self._requested]
        self._meters = Meters(self._requested, run_path, guard)
        self._next: dict[str, float] = {}
        self._logged: set[str] = set()
        self._rates = Rates()
        self._step = 0
        self.leaves_memory = False
        """Whether somebody else draws memory already, so that only growth is logged."""
        self.ahead = 0
        """How many steps more are recorded than the training that goes on counts itself."""

    def at(self, boundary: Boundary, gauges: Mapping[str, int], growth: GrowthWatch) -> None:
        """Log what was just recorded, where the last log has been paid for."""
        is_last = boundary.kind is BoundaryKind.RUN_END
        self._meters.at(boundary.time_s, gauges, growth, last=is_last)
        due = [each for each in self._trackers if self._is_due(each, boundary.time_s, is_last)]
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
            self._note_absent()
            self._note_closed()

    @property
    def has_places(self) -> bool:
        """Whether a report would find a tracker to keep it."""
        return any(self._places(lambda _: None))

    def keep(self, run_path: Path) -> list[str]:
        """Have the trackers keep the report of a run; return what went wrong, as sentences."""
        wrong: list[str] = []
        try:
            summary = self._summary(run_path)
        except ours(OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            return [f"no tracker keeps the report: {describe(fault)}"]
        for name, place in self._places(wrong.append):
            with _contained(name, wrong.append):
                place.keep(summary)
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
                f"{tracker.name} kept the training waiting for {spent:.1f} s: no more was logged.",
            )

    def _may_log(self, tracker: Tracker, place: TrackedRun) -> bool:
        return tracker.name in self._requested or place.is_local

    def _places(self, warn: Callable[[str], None]) -> Iterator[tuple[str, TrackedRun]]:
        for tracker in tuple(self._trackers):
            with _contained(tracker.name, warn):
                place = tracker.place()
                if place is not None and self._may_log(tracker, place):
                    yield tracker.name, place

    def _summary(self, run_path: Path) -> ReportSummary:
        summary = json.loads((run_path / "report.json").read_text(encoding="utf-8"))
        culprits = summary["culprits"][:_CULPRITS]
        return ReportSummary(
            page=run_path / "report.html",
            verdict=str(summary["verdict"]),
            sentence=str(summary["headline"]),
            rates={
                f"{PREFIX}culprits/{named(entry['name'])}_kib_per_{named(entry['unit'])}": round(
                    entry["bytes_per_unit"] / 1024, 3
                )
                for entry in culprits
            },
            step=self._drawn_step,
        )

    @property
    def _drawn_step(self) -> int:
        return max(0, self._step - self.ahead)

    def _note_absent(self) -> None:
        requested = {tracker.name for tracker in self._trackers} & set(self._requested)
        no_run = "had no run of it open where memory was recorded, so nothing was logged there"
        no_client = "has not imported its client, so nothing was exported"
        absent = [(name, no_run) for name in sorted(requested - self._logged)]
        for name, why in [*absent, *((name, no_client) for name in self._meters.absent)]:
            self._note("tracker-absent", f"{name} was asked for, but the program {why}.")

    def _note_closed(self) -> None:
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
def _contained(name: str, warn: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except ours(Exception) as fault:
        warn(f"{name} keeps no report: {describe(fault)}")
