"""The settings of ``pyproject.toml`` and of the environment: how each value is read, and what is
wrong with a bad one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from leakscope.model.errors import LeakscopeError
from leakscope.model.text import clipped, to_bytes

CHECK = "check"
"""The table of the settings of ``leakscope check``."""
_YES = ("on", "1", "true", "yes")
_NO = ("off", "0", "false", "no")


class UnreadableError(ValueError):
    """A value that a setting doesn't take; the message says what it takes."""


@dataclass(frozen=True)
class Setting:
    """Something that a project or its environment chooses."""

    name: str
    """As it stands in ``[tool.leakscope]``: ``cuda-history``, ``check.max-growth``."""
    read: Callable[[object], object]
    """Returns the value that something written means; raises :class:`UnreadableError`."""
    default: object
    help: str
    from_text: Callable[[str], object] = str
    """What a text of the environment stands for, before it is read."""

    @property
    def variable(self) -> str:
        """The environment variable: ``LEAKSCOPE_CUDA_HISTORY``."""
        return "LEAKSCOPE_" + self.name.upper().replace("-", "_").replace(".", "_")

    @property
    def option(self) -> str:
        """The name as an argument of Python: ``cuda_history``."""
        return self.name.rpartition(".")[2].replace("-", "_")


def to_part(value: object) -> float:
    """Return a part of one, written ``0.02``, ``"0.02"`` or ``"2%"``: 0 or more."""
    part = value
    if isinstance(value, str):
        number = value.strip().removesuffix("%")
        try:
            part = float(number) / (1 if number == value.strip() else 100)
        except ValueError:
            part = None
    if isinstance(part, bool) or not isinstance(part, (int, float)):
        raise UnreadableError('a share such as 0.02 or "2%"')
    if not math.isfinite(part) or part < 0:
        raise UnreadableError('a share such as 0.02 or "2%", 0 or more')
    return float(part)


def to_size(value: object) -> int:
    """Return bytes, written ``524288`` or ``"512 KiB"``: 1 KiB or more."""
    size = to_bytes(value) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, (int, float)) or not 1024 <= size < 2**50:
        raise UnreadableError('a size such as 524288 or "512 KiB", 1 KiB or more')
    return round(size)


def _share(value: object) -> float:
    part = to_part(value)
    if not 0 < part <= 1:
        raise UnreadableError('a share above 0 and at most 1, such as 0.02 or "2%"')
    return part


def to_milliseconds(value: object) -> float:
    """Return milliseconds, written ``100``, ``"100"`` or ``"100 ms"``: above 0."""
    number = value
    if isinstance(value, str):
        try:
            number = float(value.strip().removesuffix("ms"))
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise UnreadableError("milliseconds such as 100")
    if not (math.isfinite(number) and number > 0):
        raise UnreadableError("milliseconds above 0, such as 100")
    return float(number)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UnreadableError("true or false")
    return value


def _flag_of_text(text: str) -> object:
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UnreadableError("a text")
    return value


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UnreadableError("a path, as a text")
    return Path(value)


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UnreadableError("a list of texts")
    return list(value)


def _parted(text: str) -> object:
    return [part.strip() for part in text.split(",") if part.strip()]


def _choice_of(*choices: str) -> Callable[[object], object]:
    def read(value: object) -> object:
        if value not in choices or not isinstance(value, str):
            raise UnreadableError(f"one of {', '.join(map(repr, choices))}")
        return value

    return read


_TRACKERS = ("auto", "tensorboard", "wandb", "mlflow")


def to_trackers(value: object) -> str:
    """Return the trackers that are named, one or in a list, with commas; ``off`` for none."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and [*names] in (["off"], []):
        return "off"
    if not isinstance(names, (list, tuple)) or not all(name in _TRACKERS for name in names):
        raise UnreadableError(f"'off' or a list of {', '.join(map(repr, _TRACKERS))}")
    return ",".join(dict.fromkeys(names))


SETTINGS = (
    Setting("runs", _path, Path("leakscope-runs"), "Folder in which run directories are made."),
    Setting("budget", _share, 0.02, "Share of wall time that measuring may cost."),
    Setting(
        "max-pause",
        to_milliseconds,
        100.0,
        "Milliseconds that a census may hold the program up, the first and the last apart.",
    ),
    Setting(
        "boundaries",
        _choice_of("auto", "manual"),
        "auto",
        "Whether epochs, steps and validation are found by themselves.",
    ),
    Setting(
        "tracemalloc",
        _choice_of("off", "window", "always"),
        "window",
        "When to learn which lines allocate.",
    ),
    Setting(
        "cuda-history",
        _choice_of("off", "window"),
        "off",
        "When to learn which lines allocate on CUDA.",
    ),
    Setting(
        "native",
        _choice_of("off", "auto"),
        "auto",
        "Whether native allocations are sampled: malloc and mmap, by library and line.",
    ),
    Setting(
        "native-interval",
        to_size,
        512 << 10,
        "Mean number of bytes from one sample of them to the next.",
    ),
    Setting(
        "workers",
        _choice_of("on", "off"),
        "on",
        "Whether workers of DataLoaders record themselves.",
    ),
    Setting(
        "children",
        _choice_of("auto", "off"),
        "auto",
        "Whether other child processes that run Python record themselves.",
    ),
    Setting(
        "probe-cleanup",
        _flag,
        False,
        "Whether cleaning calls are tried now and then, and measured.",
        _flag_of_text,
    ),
    Setting(
        "snapshot-signal",
        _choice_of("off", "USR1", "USR2"),
        "off",
        "The signal on which a census is taken at once.",
    ),
    Setting(
        "trackers",
        to_trackers,
        "auto",
        "Experiment trackers of the program in which memory is drawn.",
        _parted,
    ),
    Setting("report", _flag, True, "Whether the report is written at the end.", _flag_of_text),
    Setting("quiet", _flag, False, "Whether no summary is printed.", _flag_of_text),
    Setting("label", _text, None, "A name for runs, shown in their reports."),
    Setting("check.max-growth", _text, None, "What may grow, such as 1 MB/epoch."),
    Setting("check.baseline", _path, None, "The file of what is known to grow."),
    Setting(
        "check.tolerance", to_part, 0.2, "How much faster than the baseline something may grow."
    ),
    Setting("check.ignore", _texts, [], "Names or paths that may grow.", _parted),
    Setting(
        "check.strict", _flag, True, "Whether an inconclusive run fails a check.", _flag_of_text
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
SWITCHES = {
    "LEAKSCOPE_RUN_DIR": "the run directory, where nobody says so in the code",
    "LEAKSCOPE": "off runs programs as if leakscope weren't there",
    "LEAKSCOPE_CHILD": "where a program records that a recorded one starts, which sets it",
    "LEAKSCOPE_DEBUG": "1 shows the traceback of a fault",
    "LEAKSCOPE_STRICT": "1 lets faults of leakscope's own pass, for its tests",
}
"""Variables that are no settings of a project."""


_LONGEST_SHOWN = 60


def bad_value(sentence: str) -> LeakscopeError:
    """Return the error for a choice that can't be followed."""
    return LeakscopeError(sentence, slug="bad-configuration")


def unknown_key(key: str, known: Iterable[str], where: str) -> str:
    """Return a sentence that names the known key which is most like an unknown one."""
    names = list(known)
    shown = clipped(key, _LONGEST_SHOWN)
    likely = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    meant = f"did you mean {likely[0]}?" if likely else f"it knows {', '.join(names)}."
    return f"{where} has no {shown}; {meant}"
