"""What a user chose for a session, as a value that can cross a process boundary."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from leakscope.instrument.policy import MAX_PAUSE_MS
from leakscope.model.errors import LeakscopeError

Boundaries = Literal["auto", "manual"]
Tracemalloc = Literal["off", "window", "always"]
Workers = Literal["on", "off"]
CudaHistory = Literal["off", "window"]
SnapshotSignal = Literal["off", "USR1", "USR2"]
TrackerName = Literal["off", "auto", "tensorboard", "wandb", "mlflow"]
ALL_OF_THIS_MACHINE: TrackerName = "auto"
"""Trackers that the program uses, as long as what they log stays on this machine."""


@dataclass(frozen=True)
class SessionOptions:
    """How a session measures and where it writes; values that make no sense are refused."""

    out: Path | None = None
    """Run directory; None chooses ``<time>-<script>`` in ``runs``."""
    runs: Path | None = None
    """Folder in which run directories are made; None is ``leakscope-runs``."""
    budget: float = 0.02
    """Share of wall time that measuring may cost."""
    max_pause: float = MAX_PAUSE_MS
    """Milliseconds that a census may hold the program up, the first and the last apart."""
    boundaries: Boundaries = "auto"
    tracemalloc: Tracemalloc = "window"
    cuda_history: CudaHistory = "off"
    """Whether stacks of CUDA allocations are recorded in short windows once live memory grows."""
    report: bool = True
    """Whether to build the report when the session ends."""
    force: bool = False
    """Whether a run that is already in ``out`` may be overwritten."""
    label: str | None = None
    project_root: Path | None = None
    """Folder whose files are the user's own code; None finds it from the script."""
    script: str | None = None
    command: tuple[str, ...] = field(default=())
    quiet: bool = False
    workers: Workers = "on"
    """Whether workers of DataLoaders record themselves."""
    probe_cleanup: bool = False
    """Whether the popular cleaning calls are tried now and then, and measured."""
    snapshot_signal: SnapshotSignal = "off"
    """The signal on which a census is taken at once."""
    trackers: str = ALL_OF_THIS_MACHINE
    """Where memory is logged beside what the program logs there: names with commas, or ``off``."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of somebody's training."""
        if isinstance(self.budget, bool) or not isinstance(self.budget, (int, float)):
            raise _bad(f"budget must be a share of wall time such as 0.02, not {self.budget!r}.")
        if not 0 < self.budget <= 1:
            raise _bad(f"budget must be above 0 and at most 1 (0.02 is 2 %), not {self.budget!r}.")
        if isinstance(self.max_pause, bool) or not isinstance(self.max_pause, (int, float)):
            raise _bad(f"max_pause must be milliseconds such as 100, not {self.max_pause!r}.")
        if not 0 < self.max_pause < inf:
            raise _bad(f"max_pause must be milliseconds above 0, not {self.max_pause!r}.")
        _choice("boundaries", self.boundaries, get_args(Boundaries))
        _choice("tracemalloc", self.tracemalloc, get_args(Tracemalloc))
        _choice("workers", self.workers, get_args(Workers))
        _choice("cuda_history", self.cuda_history, get_args(CudaHistory))
        _choice("snapshot_signal", self.snapshot_signal, get_args(SnapshotSignal))
        for tracker in self.trackers.split(","):
            _choice("trackers", tracker, get_args(TrackerName))

    def to_json(self) -> str:
        """Return the options as JSON, for an environment variable or a manifest."""
        values = {name: _plain(value) for name, value in asdict(self).items()}
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SessionOptions:
        """Return the options that :meth:`to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        for name in ("out", "runs", "project_root"):
            if values.get(name) is not None:
                values[name] = Path(values[name])
        values["command"] = tuple(values.get("command", ()))
        return cls(**values)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise _bad(f"{name} must be one of {choices}, not {value!r}.")


def _bad(sentence: str) -> LeakscopeError:
    return LeakscopeError(sentence, slug="bad-option")
