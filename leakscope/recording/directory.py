"""The run directory: made without touching what is not leakscope's, found by any path into it,
kept free of secrets.

Names decide (``--api-key``, ``WANDB_API_KEY``, ``password``), then the shapes of well-known tokens
and the user part of URLs. It errs towards hiding, except for words that training scripts are full
of: keypoints, tokenizers, ``max_tokens``, and for names of files that begin as a token does:
``hf_train.py``, ``sk-learn_baseline.py``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from leakscope.model.documents import LiveLeak
from leakscope.model.errors import NewerSchemaError, NoRunError, RunExistsError, UnwritableError
from leakscope.model.record import RunManifest
from leakscope.recording.format import (
    MAGIC,
    UNREADABLE,
    decode_manifest,
    encode,
    encode_manifest,
    is_manifest,
)
from leakscope.recording.writer import JOURNAL_SUFFIX

MANIFEST = "run.json"
OUTCOME = "outcome.json"
LIVE = "live.json"
"""What leaks in a program that still runs, by the latest verdict."""
OF_RANKS = "outcome-rank*.json"
_REPORTS = ("report.html", "report.json")
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class RunDirectory:
    """The folder that one run is recorded into."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(path: Path, manifest: RunManifest, *, force: bool = False) -> RunDirectory:
        """Make the folder and write its manifest, secrets in command and environment replaced.

        Args:
            path: The folder; may exist and hold other files, which are never touched.
            manifest: What is known before training begins.
            force: Replace a former run there: its own files, nothing else.

        Raises:
            RunExistsError: the folder holds a run already, or one is begun there right now.
            UnwritableError: the folder can't be made or written.

        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            if force:
                _remove_run(path)
            elif _journals(path):
                raise _exists(path)
            shown = msgspec.structs.replace(
                manifest,
                command=redact_command(manifest.command),
                environment=redact_environment(manifest.environment),
            )
            _write_new(path / MANIFEST, encode_manifest(shown))
        except FileExistsError as fault:
            if not path.is_dir():
                raise _unwritable(path, "it is a file") from fault
            raise _exists(path) from fault
        except OSError as fault:
            raise _unwritable(path, _cause(fault)) from fault
        return RunDirectory(path)

    def remove_if_empty(self) -> None:
        """Remove the folder of a run whose recordings have gone elsewhere."""
        if not _journals(self.path):
            with contextlib.suppress(OSError):
                (self.path / MANIFEST).unlink(missing_ok=True)
                self.path.rmdir()

    def write_outcome(self, outcome: dict[str, str | int], *, rank: int | None = None) -> None:
        """Write what a supervisor saw of a rank, the first by default.

        A disk that refuses it costs only this.
        """
        name = OUTCOME
        if rank is not None:
            outcome = {**outcome, "rank": rank}
            name = f"outcome-rank{rank}-{outcome.get('attempt', 0)}.json"
        _replace(self.path / name, encode(outcome))

    def write_live(self, leak: msgspec.Struct | None) -> None:
        """Write what leaks by now, None for nothing; likewise."""
        if leak is not None:
            _replace(self.path / LIVE, encode(leak))
        else:
            with contextlib.suppress(OSError):
                for left in (self.path / LIVE, *self.path.glob(f".{LIVE}.*.tmp")):
                    left.unlink(missing_ok=True)


def _replace(target: Path, data: bytes) -> None:
    temporary = temporary_path_for(target)
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_live(folder: Path) -> LiveLeak | None:
    """Return what leaks in a run that goes on, by the latest verdict of what watches it."""
    try:
        return msgspec.json.decode((folder / LIVE).read_bytes(), type=LiveLeak)
    except (OSError, msgspec.MsgspecError):
        return None


def find_run(path: Path) -> Path:
    """Return the run directory that is meant by a path: the folder itself or a file in it.

    Raises:
        NoRunError: there is none; says what the path is instead and what to do.

    """
    try:
        for folder in (path, path.parent) if path.is_file() else (path,):
            if folder.is_dir() and (journals(folder) or holds_run(folder)):
                return folder
        raise NoRunError(_what_instead(path), slug="no-run")
    except (OSError, ValueError) as fault:
        raise NoRunError(f"{path} can't be read: {fault}.", slug="no-run") from fault


def temporary_path_for(target: Path) -> Path:
    """Return where to write a file before it takes its place, a path that nobody else has.

    In a directory that machines share, processes of two of them may have the same number.
    """
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")


def is_file_of_run(path: Path) -> bool:
    """Return whether a file is one that a run keeps with its journals: not one of its reports."""
    return path.name in {MANIFEST, OUTCOME, LIVE} or path.match(OF_RANKS)


def read_manifest(folder: Path) -> RunManifest | None:
    """Return what a folder's manifest says; None where there is none, or it can't be read."""
    try:
        return decode_manifest((folder / MANIFEST).read_bytes())
    except (OSError, NewerSchemaError, *UNREADABLE):
        return None


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a manifest or a journal of ours, intact or not."""
    return _is_ours(folder / MANIFEST) or bool(_journals(folder))


def journals(folder: Path) -> list[Path]:
    """Return the journals in a run directory, whatever state they are in."""
    return sorted(p for p in folder.glob(f"*{JOURNAL_SUFFIX}") if p.is_file())


def rank_outcomes(folder: Path) -> list[Path]:
    """Return the files of what supervisors of other ranks than the first one saw."""
    return sorted(path for path in folder.glob(OF_RANKS) if path.is_file())


def _journals(folder: Path) -> list[Path]:
    """The journals that are certainly ours."""
    return [path for path in journals(folder) if is_journal(path)]


def is_journal(path: Path) -> bool:
    """Return whether a file begins as journals do."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _is_ours(manifest: Path) -> bool:
    return manifest.is_file() and is_manifest(manifest.read_bytes())


def _remove_run(folder: Path) -> None:
    if not holds_run(folder):
        return
    ours = _journals(folder) + [folder / name for name in (OUTCOME, LIVE, *_REPORTS)]
    ours += rank_outcomes(folder)
    # A foreign run.json alongside journals of ours stays, and is refused when ours is written.
    manifest = folder / MANIFEST
    if _is_ours(manifest) or (_journals(folder) and not _is_json(manifest)):
        ours.append(manifest)
    for path in ours:
        path.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _write_new(target: Path, data: bytes) -> None:
    """Write a file that must not exist; whole or not at all, and only one of two writers wins."""
    temporary = temporary_path_for(target)
    try:
        temporary.write_bytes(data)
        try:
            os.link(temporary, target)
        except OSError as fault:
            if fault.errno not in _NO_HARD_LINKS:
                raise
            with target.open("xb") as stream:
                stream.write(data)
    finally:
        temporary.unlink(missing_ok=True)


def _exists(path: Path) -> RunExistsError:
    if (path / MANIFEST).exists() and not holds_run(path):
        return RunExistsError(
            f"{path} holds a {MANIFEST} that is not leakscope's. Choose another folder with --out "
            "(in Python: out=).",
            slug="run-exists",
        )
    return RunExistsError(
        f"{path} already holds a run. Choose another folder with --out, "
        "or pass --force to replace that run (in Python: out=, force=True).",
        slug="run-exists",
    )


def _unwritable(path: Path, cause: str) -> UnwritableError:
    return UnwritableError(
        f"No run can be recorded in {path} ({cause}): choose another folder with --out "
        "(in Python: out=).",
        slug="unwritable",
    )


def _cause(fault: OSError) -> str:
    causes = {
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.ENOTDIR: "part of the path is a file",
    }
    return causes.get(fault.errno or 0, fault.strerror or str(fault))


def _what_instead(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist. Give the run directory that `leakscope run` printed."
    if not path.is_dir():
        return f"{path} is a file that belongs to no run. Give a run directory."
    runs = [child for child in path.iterdir() if child.is_dir() and holds_run(child)]
    runs.sort(key=lambda run: run.stat().st_mtime, reverse=True)
    if runs:
        names = ", ".join(str(run) for run in runs[:5])
        return f"{path} is no run but holds {len(runs)}. Name one; the newest: {names}."
    if not any(path.iterdir()):
        return f"{path} is empty. Give a run directory, or record one: leakscope run train.py."
    return f"{path} holds no run (neither {MANIFEST} nor a journal). Give a run directory."


REDACTED = "<redacted>"

_SENSITIVE = (
    r"(?:key(?!point|frame|word|board|error)|token(?!i[sz]|s(?![a-z]))|secret|passw|passphrase|"
    r"credential|(?<![a-z])pwd(?![a-z]))"
)
_SENSITIVE_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"([\w.-]*{_SENSITIVE}[\w.-]*['\"\]]*\s*[=:]\s*)(['\"]?)([^\s'\"&;,]+)", re.IGNORECASE
)
_USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_TOKENS = (
    r"hf_[A-Za-z0-9]{20,}",
    r"sk-[A-Za-z0-9]{20,}",
    r"sk-(?:proj|svcacct|admin|ant-[a-z]+\d\d|or-v\d)-[\w-]{32,}",
    r"gh[opsur]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9]{20,}\w*",
    r"glpat-[\w-]{20,}(?:\.\w+)*",
    r"xox[abeoprs]-[A-Za-z0-9-]{12,}",
    r"AKIA[A-Z0-9]{16,}",
    r"eyJ[A-Za-z0-9]{16,}[\w.+/=-]*",
)
"""Tokens are long and drawn by chance: words, and the dots and underscores between the words of a
name, soon break the run of letters and digits that betrays them."""
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})")
_PLAIN_SETTINGS = frozenset({"true", "false", "none", "null", "yes", "no", "on", "off"})


def redact_command(argv: Sequence[str]) -> list[str]:
    """Return a command line with the values that look like secrets replaced."""
    redacted: list[str] = []
    value_is_secret = False
    for argument in argv:
        if value_is_secret and not argument.startswith("-"):
            redacted.append(REDACTED)
            value_is_secret = False
            continue
        redacted.append(redact_text(argument))
        is_option = argument.startswith("-") and "=" not in argument and " " not in argument
        value_is_secret = is_option and _SENSITIVE_NAME.search(argument) is not None
    return redacted


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the values that look like secrets replaced."""
    return {
        name: REDACTED if _SENSITIVE_NAME.search(name) and value else redact_text(value)
        for name, value in environment.items()
    }


def redact_text(text: str) -> str:
    """Return a text, such as the message of an exception, with what looks like secrets replaced."""
    text = _USERINFO.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _ASSIGNMENT.sub(_redact_assignment, text)
    return _TOKEN.sub(REDACTED, text)


def _redact_assignment(match: re.Match[str]) -> str:
    name, quote, value = match.groups()
    if value.lower() in _PLAIN_SETTINGS:
        return match.group()
    return f"{name}{quote}{REDACTED}"
