"""The table of options.

Each option is written once, in :data:`SETTINGS`. The options of the command line, what
``profile()`` accepts, ``LEAKSCOPE_*``, ``[tool.leakscope]``, what ``leakscope doctor`` lists and
the table in ``docs/configuration.md`` follow it. :mod:`leakscope.configuration.project` reads what
a project and its environment chose.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from leakscope.model.text import to_bytes

CHECK = "check"
"""The table of the settings of ``leakscope check``."""
PREFIX = "LEAKSCOPE_"
_YES = ("on", "1", "true", "yes")
_NO = ("off", "0", "false", "no")

Boundaries = Literal["auto", "manual"]
Tracemalloc = Literal["auto", "off", "window", "always"]
Workers = Literal["on", "off"]
Children = Literal["auto", "off"]
CudaHistory = Literal["off", "window"]
Native = Literal["off", "auto"]
SnapshotSignal = Literal["off", "USR1", "USR2"]
METERS = ("prometheus", "opentelemetry")
"""Clients of monitoring systems, which are given figures only where they are requested by name."""
TRACKERS = ("auto", "tensorboard", "wandb", "mlflow", *METERS)


class UnreadableError(ValueError):
    """A value that a setting doesn't take; the message says what it takes."""


@dataclass(frozen=True)
class Kind:
    """What values a setting takes, however they are written."""

    takes: str
    """As the documentation has it."""
    read: Callable[[object], object]
    """Returns the value that something written means; raises :class:`UnreadableError`.

    What it returns it also accepts.
    """
    metavar: str | None = None
    """Of the option on the command line."""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    """Whether the option may be given more than once."""
    from_text: Callable[[str], object] = str
    """What a text of the environment stands for, before it is read."""
    shown: Callable[[Any], str] = str
    """How the help of an option writes a default."""


@dataclass(frozen=True)
class Setting:
    """Something that a project, its environment, a command line or a call chooses."""

    name: str
    """As it stands in ``[tool.leakscope]``: ``cuda-history``, ``check.max-growth``."""
    kind: Kind
    default: object
    help: str
    flags: tuple[str, ...] = ()
    """How the option of the command line is written where it isn't ``--`` and the name."""

    @property
    def variable(self) -> str:
        """The environment variable: ``LEAKSCOPE_CUDA_HISTORY``."""
        return PREFIX + self.name.upper().replace("-", "_").replace(".", "_")

    @property
    def option(self) -> str:
        """The name as an argument of Python: ``cuda_history``."""
        return self.name.rpartition(".")[2].replace("-", "_")

    @property
    def is_of_session(self) -> bool:
        """Whether it says how a program is recorded, rather than how a run is checked."""
        return not self.name.startswith(f"{CHECK}.")


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number_of(value: object, unit: str) -> float | None:
    """Return a number, or what a text says with or without this unit; None where it is none."""
    if isinstance(value, str):
        try:
            return float(value.strip().removesuffix(unit))
        except ValueError:
            return None
    return float(value) if _is_number(value) else None


def _to_part(value: object) -> float:
    """Return a part of one, written ``0.02``, ``"0.02"`` or ``"2%"``: 0 or more."""
    number = _number_of(value, "%")
    if number is None:
        raise UnreadableError('a share such as 0.02 or "2%"')
    if not math.isfinite(number) or number < 0:
        raise UnreadableError('a share such as 0.02 or "2%", 0 or more')
    return number / 100 if isinstance(value, str) and value.strip().endswith("%") else number


def _to_share(value: object) -> float:
    part = _to_part(value)
    if not 0 < part <= 1:
        raise UnreadableError('a share above 0 and at most 1, such as 0.02 or "2%"')
    return part


def _to_milliseconds(value: object) -> float:
    number = _number_of(value, "ms")
    if number is None:
        raise UnreadableError("milliseconds such as 100")
    if not (math.isfinite(number) and number > 0):
        raise UnreadableError("milliseconds above 0, such as 100")
    return number


def _reader(
    takes: str, accepts: Callable[[Any], bool], meaning: Callable[[Any], object] | None = None
) -> Callable[[object], object]:
    """Return what reads values: what is accepted means itself, or what ``meaning`` makes of it."""

    def read(value: object) -> object:
        if not accepts(value):
            raise UnreadableError(takes)
        return value if meaning is None else meaning(value)

    return read


def _size_from(least: int, takes: str) -> Callable[[object], object]:
    is_size = _reader(takes, lambda size: _is_number(size) and least <= size < 2**50, round)
    return lambda value: is_size(to_bytes(value) if isinstance(value, str) else value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _flag_of_text(text: str) -> object:
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else text


def _parted(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _to_trackers(value: object) -> str:
    """Return the trackers that are named, one or in a list, with commas; ``off`` for none."""
    names = (_parted(value) or [value]) if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and [*names] in (["off"], []):
        return "off"
    if not isinstance(names, (list, tuple)) or not all(name in TRACKERS for name in names):
        raise UnreadableError(f"'off' or a list of {', '.join(map(repr, TRACKERS))}")
    return ",".join(dict.fromkeys(names))


def _choice_of(literal: Any) -> Kind:
    choices = get_args(literal)
    takes = f"one of {', '.join(map(repr, choices))}"
    read = _reader(takes, lambda value: isinstance(value, str) and value in choices)
    return Kind(", ".join(f"`{choice}`" for choice in choices), read, choices=choices)


FLAG = Kind(
    "true, false",
    _reader("true or false", lambda value: isinstance(value, bool)),
    from_text=_flag_of_text,
)
TEXT = Kind("a text", _reader("a text", _is_text), "TEXT")
PATH = Kind(
    "a path",
    _reader("a path, as a text", lambda value: _is_text(value) and "\0" not in value, Path),
    "FILE",
)
SHARE = Kind('a share of wall time: `0.02`, `"2%"`', _to_share, "SHARE", shown="{:.0%}".format)
PART = Kind('a share: `0.2`, `"20%"`', _to_part, "SHARE", shown="{:.0%}".format)
MILLISECONDS = Kind('milliseconds: `100`, `"100 ms"`', _to_milliseconds, "MS", shown="{:g}".format)
SIZE = Kind(
    'a size: `524288`, `"512 KiB"`',
    # Samples of less would take more memory than the program.
    _size_from(1024, 'a size such as 524288 or "512 KiB", 1 KiB or more'),
    "SIZE",
    shown=lambda size: f"{size >> 10}KiB",
)
RECORDING_SIZE = Kind(
    'a size: `"200 MB"`',
    # The sources and a few censuses have to find room.
    _size_from(1 << 20, 'a size such as "200 MB", 1 MiB or more'),
    "SIZE",
    shown=lambda size: f"{size >> 20}MiB",
)
RATE = Kind("a rate: `1 MB/epoch`", TEXT.read, "RATE")
PATTERNS = Kind(
    "a list of patterns; in a variable with commas",
    _reader("a list of texts", _are_texts, list),
    "PATTERN",
    is_list=True,
    from_text=_parted,
)
TRACKER_NAMES = Kind(
    "`auto`, `off`, or of `tensorboard`, `wandb`, `mlflow`, `prometheus`, `opentelemetry` one or a "
    "list",
    _to_trackers,
    choices=(*TRACKERS, "off"),
    is_list=True,
    from_text=_parted,
)

SETTINGS = (
    Setting("runs", PATH, Path("leakscope-runs"), "Folder in which run directories are made."),
    Setting("budget", SHARE, 0.02, "Share of wall time that measuring may cost."),
    Setting(
        "max-pause",
        MILLISECONDS,
        100.0,
        "Milliseconds that a census may pause the program, except the first and the last.",
    ),
    Setting(
        "max-recording",
        RECORDING_SIZE,
        500 << 20,
        "Bytes that the recording of a process may take before readings are left out of it, evenly "
        "over the time so far.",
    ),
    Setting(
        "boundaries",
        _choice_of(Boundaries),
        "auto",
        "Whether epochs, steps and validation are found by themselves.",
    ),
    Setting(
        "tracemalloc",
        _choice_of(Tracemalloc),
        "auto",
        "When to trace which lines allocate; by itself only where they can't be sampled.",
    ),
    Setting(
        "cuda-history",
        _choice_of(CudaHistory),
        "off",
        "When to trace which lines allocate on CUDA; a history that the program records is kept.",
    ),
    Setting(
        "native",
        _choice_of(Native),
        "auto",
        "Whether native allocations (malloc, mmap) are sampled by library and line.",
    ),
    Setting(
        "native-interval",
        SIZE,
        512 << 10,
        "Mean number of bytes between samples of native allocations.",
    ),
    Setting(
        "workers", _choice_of(Workers), "on", "Whether workers of DataLoaders record themselves."
    ),
    Setting(
        "children",
        _choice_of(Children),
        "auto",
        "Whether other child processes that run Python record themselves.",
    ),
    Setting(
        "probe-cleanup",
        FLAG,
        False,
        "Try gc.collect(), empty_cache() and malloc_trim(0) at the end of a few phases and report "
        "what each really freed. It changes when garbage is collected.",
    ),
    Setting(
        "snapshot-signal",
        _choice_of(SnapshotSignal),
        "off",
        "Signal on which a census is taken at once, sent by `leakscope snapshot PID`. Choose one "
        "that the program doesn't use.",
    ),
    Setting(
        "trackers",
        TRACKER_NAMES,
        "auto",
        "Experiment tracker or client of a monitoring system in which memory is plotted; may be "
        "given more than once. auto takes trackers that the program uses and whose data stays on "
        "this machine.",
        flags=("--tracker",),
    ),
    Setting(
        "report", FLAG, True, "Whether to write the report at the end.", ("--report/--no-report",)
    ),
    Setting("quiet", FLAG, False, "Print no summary, only faults.", flags=("--quiet", "-q")),
    Setting("label", TEXT, None, "A name for the run, shown in its report."),
    Setting(
        "check.max-growth", RATE, None, "How fast something may grow: 1 MB/epoch, 64 KiB/step, …."
    ),
    Setting("check.baseline", PATH, None, "File that lists what is known to grow."),
    Setting(
        "check.tolerance", PART, 0.2, "How much faster than the baseline something known may grow."
    ),
    Setting("check.ignore", PATTERNS, [], "Names, paths or kinds that may grow."),
    Setting(
        "check.strict",
        FLAG,
        True,
        "Whether an inconclusive run fails; it does by default.",
        ("--strict/--no-strict",),
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
DEFAULTS: dict[str, Any] = {s.option: s.default for s in SETTINGS if s.is_of_session}
"""Of a session's settings, by their names as arguments of Python."""
SWITCHES = {
    "LEAKSCOPE_RUN_DIR": "the run directory, where nobody says so in the code",
    "LEAKSCOPE": "off runs programs as if leakscope weren't there",
    "LEAKSCOPE_CHILD": "where a program records that a recorded one starts, which sets it",
    "LEAKSCOPE_DEBUG": "1 shows the traceback of a fault",
    "LEAKSCOPE_STRICT": "1 lets faults of leakscope's own pass, for its tests",
}
"""Variables that are no settings of a project."""


def is_off() -> bool:
    """Return whether the environment switches leakscope off."""
    return os.environ.get("LEAKSCOPE", "").lower() in _NO
