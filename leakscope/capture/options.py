"""What a user chose for a session: a value that can cross a process boundary, with the settings of
the project and the environment where nothing else is set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from leakscope.configuration import (
    DEFAULTS,
    FLAG,
    PATH,
    SETTINGS,
    TEXT,
    Boundaries,
    Children,
    CudaHistory,
    Native,
    SnapshotSignal,
    Tracemalloc,
    UnreadableError,
    Workers,
)
from leakscope.model.errors import LeakscopeError

_TAKEN_AS_THEY_ARE = (FLAG, PATH, TEXT)


@dataclass(frozen=True)
class SessionOptions:
    """How a session measures and where it writes; values that make no sense are refused.

    Those that a project may choose are in the table of :mod:`leakscope.configuration`.
    """

    out: Path | None = None
    """Run directory; None chooses ``<time>-<script>`` in ``runs``."""
    runs: Path | None = None
    """Folder in which run directories are made; None is ``leakscope-runs``."""
    budget: float = DEFAULTS["budget"]
    max_pause: float = DEFAULTS["max_pause"]
    max_recording: int = DEFAULTS["max_recording"]
    boundaries: Boundaries = DEFAULTS["boundaries"]
    tracemalloc: Tracemalloc = DEFAULTS["tracemalloc"]
    cuda_history: CudaHistory = DEFAULTS["cuda_history"]
    native: Native = DEFAULTS["native"]
    native_interval: int = DEFAULTS["native_interval"]
    report: bool = DEFAULTS["report"]
    force: bool = False
    label: str | None = DEFAULTS["label"]
    project_root: Path | None = None
    """Folder whose files are the user's own code; None finds it from the script."""
    script: str | None = None
    command: tuple[str, ...] = field(default=())
    quiet: bool = DEFAULTS["quiet"]
    workers: Workers = DEFAULTS["workers"]
    children: Children = DEFAULTS["children"]
    probe_cleanup: bool = DEFAULTS["probe_cleanup"]
    snapshot_signal: SnapshotSignal = DEFAULTS["snapshot_signal"]
    trackers: str = DEFAULTS["trackers"]
    """Names with commas, or ``off``; whatever is given, such as a list, becomes that."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of somebody's training."""
        for setting in SETTINGS:
            if not setting.is_of_session or setting.kind in _TAKEN_AS_THEY_ARE:
                continue
            value = getattr(self, setting.option)
            try:
                object.__setattr__(self, setting.option, setting.kind.read(value))
            except UnreadableError as fault:
                raise LeakscopeError(
                    f"{setting.option} must be {fault}, not {value!r}.", slug="bad-option"
                ) from None

    def to_json(self) -> str:
        """Return the options as JSON, for an environment variable or a manifest."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @classmethod
    def from_json(cls, text: str) -> SessionOptions:
        """Return the options that :meth:`to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        for name in ("out", "runs", "project_root"):
            if values.get(name) is not None:
                values[name] = Path(values[name])
        values["command"] = tuple(values.get("command", ()))
        return cls(**values)


class RecordingOptions(TypedDict, total=False):
    """How a training is recorded where nothing records yet, as :func:`leakscope.profile` has it."""

    out: str | Path | None
    budget: float | str
    tracemalloc: Tracemalloc
    cuda_history: CudaHistory
    native: Native
    native_interval: int
    workers: Workers
    children: Children
    report: bool
    force: bool
    label: str | None
    quiet: bool
    probe_cleanup: bool
    trackers: str | Sequence[str]


def configured_options(
    on_remark: Callable[[str], None] | None = None, **overrides: Any
) -> SessionOptions:
    """Return the options of a session.

    Of ``overrides`` None stands for what was not chosen; ``on_remark`` gets each sentence on what
    is passed over. Raises ``LeakscopeError`` where options make no sense, wherever they come from.
    """
    from leakscope.configuration.project import read_configuration

    configuration = read_configuration()
    configuration.refuse_faults()
    if on_remark is not None:
        for remark in configuration.remarks:
            on_remark(remark)
    options = {
        setting.option: configuration.chosen[setting.name].value
        for setting in SETTINGS
        if setting.is_of_session and setting.name in configuration.chosen
    }
    options |= {name: value for name, value in overrides.items() if value is not None}
    return SessionOptions(**options)
