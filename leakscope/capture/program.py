"""The user's program as a Python command line names it: a script, a module or code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ProgramKind = Literal["script", "module", "code", "stdin"]

STDIN = "-"
_OPTION_OF: dict[ProgramKind, tuple[str, ...]] = {
    "script": (),
    "module": ("-m",),
    "code": ("-c",),
    "stdin": (),
}
_PROJECT_MARKS = ("pyproject.toml", "setup.py", ".git")


@dataclass(frozen=True)
class Program:
    """What to run as ``__main__`` and the arguments that belong to it."""

    kind: ProgramKind
    target: str
    """Path of a script, folder or zip; name of a module; source code; or ``-``."""
    args: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """What follows ``python`` and its own options on the command line."""
        return [*_OPTION_OF[self.kind], self.target, *self.args]

    @property
    def argv(self) -> list[str]:
        """``sys.argv`` when the program starts (``-m`` puts the module's path there itself)."""
        return [*(_OPTION_OF[self.kind] or (self.target,)), *self.args]

    @property
    def filename(self) -> str:
        """The script's ``__file__``: made absolute as Python does, without tidying the path."""
        return self.target if Path(self.target).is_absolute() else f"{Path.cwd()}/{self.target}"

    @property
    def label(self) -> str:
        """A short name for people and for file names: ``train``, ``package.module``, ``code``."""
        if self.kind in ("code", "stdin"):
            return self.kind
        return self.target if self.kind == "module" else Path(self.filename).stem

    @property
    def title(self) -> str:
        """What a report calls it: ``train.py``, ``-m package.module``, ``-c``, ``-``."""
        return f"-m {self.target}" if self.kind == "module" else self.argv[0]

    def project_root(self) -> str:
        """Return the folder whose files are the user's own code.

        The nearest folder above the script that has a project's marks, else the script's own;
        the working directory for ``-m`` and ``-c``, and for a script that is no file but a pipe.
        """
        script = Path(os.path.realpath(self.target))
        if self.kind != "script" or not (script.is_file() or script.is_dir()):
            return str(Path.cwd())
        folder = script if script.is_dir() else script.parent
        for candidate in (folder, *folder.parents):
            if any((candidate / mark).exists() for mark in _PROJECT_MARKS):
                return str(candidate)
        return str(folder)


def interpreter_options(original: Sequence[str] | None = None) -> list[str]:
    """Return the options that this interpreter was started with, e.g. ``["-u", "-W", "error"]``.

    Taken from ``sys.orig_argv``, because not every option leaves a trace in ``sys.flags``.
    """
    words = list(sys.orig_argv if original is None else original)[1:]
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word.startswith("--"):
            options += [word, *words[:1]]
            del words[:1]
            continue
        kept, ends, takes_next = _split_short_options(word)
        if kept != "-":
            options.append(kept)
        if takes_next:
            options += words[:1]
            del words[:1]
        if ends:
            break
    return options


def _split_short_options(word: str) -> tuple[str, bool, bool]:
    """Return the options before ``-c`` or ``-m``, whether those end them, and whether the next
    word is the value of the last one.
    """
    for index, letter in enumerate(word[1:], start=1):
        if letter in "cm":
            return word[:index], True, False
        if letter in "WX":
            return word, False, index == len(word) - 1
    return word, False, False
