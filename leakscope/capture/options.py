"""What a user chose for a session: a value that can cross a process boundary, with the settings of
the project and the environment where nobody said otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from leakscope.capture.policy import MAX_PAUSE_MS
from leakscope.model.errors import LeakscopeError

Boundaries = Literal["auto", "manual"]
Tracemalloc = Literal["off", "window", "always"]
Workers = Literal["on", "off"]
Children = Literal["auto", "off"]
CudaHistory = Literal["off", "window"]
Native = Literal["off", "auto"]
SnapshotSignal = Literal["off", "USR1", "USR2"]
TrackerName = Literal["off", "auto", "tensorboard", "wandb", "mlflow"]
ALL_OF_THIS_MACHINE: TrackerName = "auto"
"""Trackers that the program uses, as long as what they log stays on this machine."""


LEAST_INTERVAL = 1 << 10
"""Bytes: of shorter intervals the samples would take more memory than the program."""


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
    native: Native = "auto"
    """Whether native allocations are sampled, where they can be."""
    native_interval: int = 512 << 10
    """Mean number of bytes from one sample to the next."""
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
    children: Children = "auto"
    """Whether other child processes that run Python record themselves."""
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
        _choice("children", self.children, get_args(Children))
        _choice("cuda_history", self.cuda_history, get_args(CudaHistory))
        _choice("native", self.native, get_args(Native))
        if type(self.native_interval) is not int or self.native_interval < LEAST_INTERVAL:
            raise _bad(
                f"native_interval must be a whole number of bytes, {LEAST_INTERVAL} or more, not "
                f"{self.native_interval!r}."
            )
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


def chosen_trackers(value: object) -> str | None:
    """Return the trackers that an argument or option names; None where nothing was said.

    Raises:
        LeakscopeError: it names something else.

    """
    from leakscope.configuration.settings import UnreadableError, to_trackers
    from leakscope.model.errors import LeakscopeError

    try:
        return None if value is None else to_trackers(value)
    except UnreadableError as fault:
        raise LeakscopeError(
            f"trackers must be {fault}, not {value!r}.", slug="bad-option"
        ) from None


def configured_options(
    say: Callable[[str], None] | None = None, **overrides: Any
) -> SessionOptions:
    """Return the options of a session.

    Args:
        say: Told each sentence on what is passed over, such as a key that is unknown.
        **overrides: fields of the options; None stands for what was not said.

    Raises:
        LeakscopeError: options make no sense, wherever they come from.

    """
    from leakscope.configuration import read_configuration
    from leakscope.configuration.settings import CHECK, SETTINGS

    configuration = read_configuration()
    configuration.refuse_faults()
    if say is not None:
        for remark in configuration.remarks:
            say(remark)
    options = {
        setting.option: configuration.chosen[setting.name].value
        for setting in SETTINGS
        if setting.name in configuration.chosen and not setting.name.startswith(f"{CHECK}.")
    }
    options |= {name: value for name, value in overrides.items() if value is not None}
    return SessionOptions(**options)
