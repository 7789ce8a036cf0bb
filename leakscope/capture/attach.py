"""Looks at a process from outside, and sends a visitor in who records (``capture/visit.py``).

Before anything is touched it is known what is in the way. The kernel says what is allowed
itself: ``/proc/PID/mem`` opens for whoever may trace the process, and opening it does nothing.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from leakscope.capture import visit
from leakscope.capture.debugger import (
    DebuggerError,
    Injection,
    deliver,
    deliver_remotely,
    has_debugger,
)
from leakscope.capture.options import SessionOptions
from leakscope.model import __version__
from leakscope.model.errors import LeakscopeError
from leakscope.probes.process import OutsideProcess, status_of
from leakscope.recording.following import open_journals

SAFE_POINT_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 4.0
START_SECONDS = 300.0
"""So long importing leakscope and the first census may take in a process that has much to do."""
LEAVE_SECONDS = 120.0
POLL_S = 0.05
OLDEST = (3, 10)
REMOTE_EXEC = (3, 14)
_PREFIX = "leakscope-attach-"
_RUNS = "runs"
_LIBRARIES = ("msgspec", "psutil", "typing_extensions", "tomli", "packaging")
"""What the package imports while it records, besides the standard library."""
_COMPILED = {"msgspec"}
"""Those that one version of Python alone can load."""
_CAP_SYS_PTRACE = 19
_VERSION = re.compile(r"/(?:lib)?python(\d)\.(\d+)")
_SYMBOL = b"Py_AddPendingCall\0"
_STATEMENT = """\
try:
 __import__("_thread").start_new_thread(__import__("builtins").exec, ({source!r}, {{}}))
except KeyboardInterrupt: __import__("_thread").interrupt_main()
except BaseException: pass
"""
_SOURCE = """\
try:
 import io
 with io.open({visit!r}, encoding="utf-8") as f: c = compile(f.read(), {visit!r}, "exec", 0, True)
 n = {{"__name__": "leakscope.capture.visit", "__file__": {visit!r}}}
 exec(c, n)
 n["come"]({folder!r}, {{page}})
except BaseException: pass
"""


class AttachError(LeakscopeError):
    """Nothing was recorded in the process, and nothing is left there; one sentence says why."""

    def __init__(self, message: str, *, slug: str = "no-attach", may_watch: bool = False) -> None:
        super().__init__(message, slug=slug)
        self.may_watch = may_watch


@dataclass(frozen=True)
class Target:
    """A process, as far as it can be known without touching it."""

    pid: int
    version: tuple[int, int] | None = None
    """Of its Python; None where its files don't tell."""
    interpreter: str = ""
    is_musl: bool = False
    shares_files: bool = True
    """Whether it sees leakscope's files where they are here."""
    shares_user: bool = True
    """Whether what it writes here is written by us, as it were."""

    @property
    def root(self) -> Path:
        """Where its file system begins."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def python(self) -> str:
        """The version of its Python, in words."""
        return "" if self.version is None else f"{self.version[0]}.{self.version[1]}"

    def remarks(self) -> list[str]:
        """Return what will be different there, in sentences."""
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        sentences = []
        if self.version is not None and self.python != here:
            sentences.append(
                f"process {self.pid} runs Python {self.python}, and the C parts here are built for "
                f"{here}: unless leakscope {__version__} is installed there too, the slower "
                "reference walker looks at the heap."
            )
        if self.is_musl and platform.libc_ver()[0]:
            sentences.append(
                f"process {self.pid} runs on musl, for which the C parts here are not built."
            )
        return sentences


def look_at(pid: int) -> Target:
    """Return what a process is; raises AttachError, with what is in the way and what to do."""
    if not sys.platform.startswith("linux"):
        raise AttachError("Attaching works on Linux; elsewhere begin with `leakscope run`.")
    status = status_of(pid)
    if not status:
        raise AttachError(f"There is no process {pid}.", slug="no-process")
    if status.get("State", "").startswith(("Z", "X")):
        raise AttachError(f"Process {pid} has ended already.", slug="no-process")
    if pid == os.getpid():
        raise AttachError("That is this very process; name another one.")
    _require_rights(pid, status)
    _refuse_recorded(pid, status)
    tracer = int(status.get("TracerPid", "0"))
    if tracer:
        raise AttachError(
            f"Process {pid} is held by another debugger, process {tracer}: end that one first.",
            may_watch=True,
        )
    if status.get("State", "").startswith(("T", "t")):
        raise AttachError(
            f"Process {pid} is stopped; let it go on first: kill -CONT {pid}.", may_watch=True
        )
    target = _inspected(pid)
    if target.version is not None and target.version < OLDEST:
        raise AttachError(
            f"Process {pid} runs Python {target.python}, and leakscope needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer.",
            may_watch=True,
        )
    _require_means(target)
    return target


def _require_rights(pid: int, status: dict[str, str]) -> None:
    try:
        with Path(f"/proc/{pid}/mem").open("rb"):
            return
    except FileNotFoundError:
        raise AttachError(f"There is no process {pid}.", slug="no-process") from None
    except OSError:
        raise AttachError(why_no_rights(pid, status), slug="no-access", may_watch=True) from None


def why_no_rights(
    pid: int, status: dict[str, str], *, user: int | None = None, scope: str | None = None
) -> str:
    """Return why a process may not be traced, in a sentence that says what would allow it."""
    owner = int(status.get("Uid", "-1").split()[0])
    user = os.geteuid() if user is None else user
    if owner != user and user != 0:
        return f"Process {pid} is another user's (id {owner}): attach as that user, or as root."
    scope = _ptrace_scope() if scope is None else scope
    if scope == "3":
        return (
            f"Process {pid} may not be traced: kernel.yama.ptrace_scope is 3, which forbids it to "
            "everybody until the machine is restarted."
        )
    if user != 0 and scope in ("1", "2"):
        return (
            f"Process {pid} may not be traced: kernel.yama.ptrace_scope is {scope}. Attach as root "
            "(sudo), or allow it for now: sudo sysctl kernel.yama.ptrace_scope=0."
        )
    if not _may_trace():
        return (
            f"Process {pid} may not be traced: this process lacks the capability CAP_SYS_PTRACE. "
            "In a container: docker run --cap-add SYS_PTRACE, or in Kubernetes "
            "securityContext.capabilities.add."
        )
    return (
        f"Process {pid} may not be traced: it has forbidden that itself (prctl PR_SET_DUMPABLE), "
        "or is of a program that only some may read. Attach as root."
    )


def _ptrace_scope() -> str:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        return "0"


def _may_trace() -> bool:
    try:
        return bool(int(status_of(os.getpid())["CapEff"], 16) >> _CAP_SYS_PTRACE & 1)
    except (KeyError, ValueError):
        return True


def _refuse_recorded(pid: int, status: dict[str, str]) -> None:
    inside = status.get("NSpid", str(pid)).split()[-1]
    for journal, header in open_journals(pid):
        if str(header.pid) == inside and header.role != "monitor":
            raise AttachError(
                f"Process {pid} is recorded already, into {journal.parent}: "
                f"leakscope show {journal.parent} tells where it stands."
            )


def _inspected(pid: int) -> Target:
    proc = Path(f"/proc/{pid}")
    maps = (proc / "maps").read_text(errors="replace")
    executable = str((proc / "exe").readlink())
    files = {line.split(None, 5)[5] for line in maps.splitlines() if len(line.split(None, 5)) > 5}
    library = next((file for file in sorted(files) if "/libpython" in file), "")
    interpreter = library or executable
    places = [interpreter, *sorted(files)]
    found = next((match for place in places if (match := _VERSION.search(place))), None)
    version = None if found is None else (int(found[1]), int(found[2]))
    file = proc / "root" / library.lstrip("/") if library else proc / "exe"
    if not _has_symbol(file):
        raise AttachError(
            f"Process {pid} has Python in it, but without the functions that are needed: its "
            "interpreter is linked statically and stripped. Start the program with `leakscope run`."
            if found is not None
            else f"Process {pid} is no Python process ({Path(executable).name}).",
            may_watch=True,
        )
    return Target(
        pid,
        version=version,
        interpreter=interpreter,
        is_musl="/ld-musl" in maps,
        shares_files=_shares_files(pid),
        shares_user=_shares_mounts(pid) and _owner(pid) in (0, os.geteuid()),
    )


def _has_symbol(file: Path) -> bool:
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as text:
            return text.find(_SYMBOL) >= 0
    except (OSError, ValueError):
        return False


def _shares_files(pid: int) -> bool:
    """Return whether the process sees this file, and may read it."""
    seen = Path(f"/proc/{pid}/root") / str(Path(__file__).resolve()).lstrip("/")
    try:
        same = seen.samefile(__file__)
    except OSError:
        return False
    return same and (_owner(pid) in (0, os.geteuid()) or _is_public(Path(__file__).resolve()))


def _owner(pid: int) -> int:
    return int(status_of(pid).get("Uid", "-1").split()[0])


def _shares_mounts(pid: int) -> bool:
    """Return whether a path means the same file to the process."""
    try:
        same = Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        return same and Path(f"/proc/{pid}/root").readlink() == Path("/proc/self/root").readlink()
    except OSError:
        return False


def _is_public(file: Path) -> bool:
    """Return whether everybody may read a file, and go through the folders above it."""
    return bool(file.stat().st_mode & 0o004) and all(
        folder.stat().st_mode & 0o001 for folder in file.parents
    )


def _require_means(target: Target) -> None:
    pid = target.pid
    if target.version is not None and target.version >= REMOTE_EXEC:
        if _forbids_remote_debugging(pid):
            raise AttachError(
                f"Process {pid} was started with PYTHON_DISABLE_REMOTE_DEBUG (or -X "
                "disable_remote_debug): it lets nobody in. Start it without.",
                may_watch=True,
            )
        return
    if not has_debugger():
        raise AttachError(
            f"Attaching to Python {target.python or 'before 3.14'} needs gdb, which isn't "
            "installed: apt install gdb (or dnf, apk). From Python 3.14 on it needs nothing.",
            may_watch=True,
        )


def _forbids_remote_debugging(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    named = any(word.startswith(b"PYTHON_DISABLE_REMOTE_DEBUG=") for word in variables)
    return named or any(b"disable_remote_debug" in word for word in words)


class Attachment:
    """One visit in a process: begun, looked after, and ended."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # Held open: what lies there can be read when the process and its mounts are gone.
        self._place, self._folder = _make_folder(target)
        self._keeper = (self._folder / visit.KEEPER).open("wb")
        fcntl.flock(self._keeper, fcntl.LOCK_EX)
        # Tells whether the process is gone, and not only its number in use.
        process = OutsideProcess(target.pid, since=time.time())
        self._gone: Callable[[], bool] = lambda: not process.is_alive

    def begin(
        self,
        options: SessionOptions,
        *,
        seconds: float | None = None,
        once: bool = False,
        patience: float = SAFE_POINT_SECONDS,
    ) -> dict[str, Any]:
        """Start recording in the process; return where, and what its Python is.

        Raises AttachError where it doesn't, and nothing is left behind.
        """
        package = self._package()
        if not self.target.shares_user:
            options = replace(options, out=None, runs=self._inside / _RUNS)
        wanted = {
            "version": __version__,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "options": json.loads(options.to_json()),
            "places": self._places(package),
            "seconds": seconds,
            "once": once,
        }
        self._write(visit.REQUEST, json.dumps(wanted))
        file = package / "leakscope" / "capture" / "visit.py"
        source = _SOURCE.format(visit=str(file), folder=str(self._inside))
        statement = _STATEMENT.format(source=source)
        try:
            self._send(Injection(self.target.pid, statement), patience)
            return self._await_start()
        except BaseException:
            self._withdraw()
            if (self._folder / visit.CLAIMED).exists():
                self.request_stop()
                self.await_leaving()
            raise

    def _await_start(self) -> dict[str, Any]:
        pid = self.target.pid
        until = time.monotonic() + START_SECONDS
        while True:
            state = self.state()
            if "why" in state:
                raise AttachError(f"Nothing is recorded in process {pid}: {state['why']}")
            if state:
                return state
            if self._gone():
                raise _ended(pid)
            if time.monotonic() > until:
                raise AttachError(
                    f"Process {pid} hasn't begun to record within {START_SECONDS:.0f} s; it was "
                    "asked to leave it."
                )
            time.sleep(POLL_S)

    def state(self) -> dict[str, Any]:
        """Return what the visitor says of itself."""
        return _state_in(self._folder)

    @property
    def is_over(self) -> bool:
        """Whether the recording has ended, or the process."""
        return self.state().get("state") in ("ended", "left") or self._gone()

    def request_stop(self) -> None:
        """Ask the visitor to end the recording and leave."""
        self._write(visit.STOP, "")

    def await_leaving(self) -> bool:
        """Wait until nothing is left in the process; return whether that is so."""
        return _await(
            lambda: self.state().get("state") == "left" or self._gone(), self._gone, LEAVE_SECONDS
        )

    def fetch(self, run: Path, otherwise: Path) -> Path:
        """Return where the run lies; one written elsewhere is brought to ``otherwise``."""
        if self.target.shares_user:
            return run
        shutil.copytree(
            self._folder / _RUNS / run.name,
            otherwise,
            copy_function=shutil.copyfile,
            dirs_exist_ok=True,
        )
        return otherwise

    def close(self) -> None:
        """Remove what both sides spoke through; a visitor that is still there leaves then."""
        self._keeper.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._place)

    def _send(self, injection: Injection, patience: float) -> None:
        pid = self.target.pid
        try:
            if self.target.version is not None and self.target.version >= REMOTE_EXEC:
                self._send_remotely(injection)
                sent = self._await_claim(patience)
            else:
                sent = self._send_by_gdb(injection, patience)
        except DebuggerError as fault:
            if self._withdraw():
                if self._gone():
                    raise _ended(pid) from fault
                raise AttachError(
                    f"Process {pid} can't be entered: {str(fault).rstrip('.')}.", may_watch=True
                ) from fault
            return
        if not sent and self._withdraw():
            if self._gone():
                raise _ended(pid)
            raise AttachError(
                f"Process {pid} didn't reach a safe point within {patience:g} s: its main thread "
                "is in a long call into C, or waits inside a library. Nothing is left behind; try "
                "again, or give it longer (--wait).",
                slug="no-safe-point",
                may_watch=True,
            )

    def _send_by_gdb(self, injection: Injection, patience: float) -> bool:
        until = time.monotonic() + patience
        while True:
            deliver(injection)
            left = until - time.monotonic()
            if self._await_claim(max(0.5, min(LOOK_AGAIN_SECONDS, left))):
                return True
            if time.monotonic() >= until or self._gone():
                return False

    def _send_remotely(self, injection: Injection) -> None:
        pid = self.target.pid
        self._write("enter.py", injection.statement.replace("{page}", "0"))
        command, number = [sys.executable], str(pid)
        if self.target.version != sys.version_info[:2] or not _shares_mounts(pid):
            own = Path(f"/proc/{pid}/exe").readlink()
            command = [str(own)]
            if not _shares_mounts(pid):
                # Its own interpreter, with its own libraries, by the number that it knows it by.
                root = Path(f"/proc/{pid}/root").readlink()
                inside = Path("/") / own.relative_to(root) if own.is_relative_to(root) else own
                entering = ["nsenter", f"--target={pid}", "--mount", "--pid", "--root"]
                command = [*entering, str(inside)]
                number = status_of(pid).get("NSpid", number).split()[-1]
        deliver_remotely(int(number), self._inside / "enter.py", command)

    def _await_claim(self, seconds: float) -> bool:
        return _await(lambda: not (self._folder / visit.REQUEST).exists(), self._gone, seconds)

    def _withdraw(self) -> bool:
        """Take the request back; return False where the visitor was faster."""
        try:
            (self._folder / visit.REQUEST).rename(self._folder / "withdrawn.json")
        except OSError:
            return False
        return True

    @property
    def _inside(self) -> Path:
        return Path("/tmp") / self._folder.name  # noqa: S108

    def _package(self) -> Path:
        """Return the folder that holds the package, as the process sees it."""
        own = Path(__file__).resolve().parents[2]
        if self.target.shares_files:
            return own
        place = self._folder / "packages"
        place.mkdir()
        for name in ("leakscope", *_LIBRARIES):
            source = own / name if name == "leakscope" else _place_of(name)
            if source is not None and source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, place / source.name, ignore=ignored)
            elif source is not None:
                shutil.copy(source, place)
        _give(place, self.target.pid)
        return self._inside / "packages"

    def _places(self, package: Path) -> dict[str, str]:
        here = (sys.version_info[0], sys.version_info[1])
        fits = self.target.version in (None, here)
        names = [name for name in _LIBRARIES if fits or name not in _COMPILED]
        places = {"leakscope": str(package)}
        for name in names:
            found = _place_of(name)
            if found is not None:
                places[name] = str(found.parent if self.target.shares_files else package)
        return places

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        new = path.with_name(f"{name}.new")
        new.write_text(text)
        _give(new, self.target.pid)
        new.replace(path)


def request_detach(pid: int) -> bool:
    """End what another ``leakscope attach`` records in a process; return whether there was any.

    Raises AttachError where it is another user's, or doesn't leave in time.
    """
    status = status_of(pid)
    if not status:
        raise AttachError(f"There is no process {pid}.", slug="no-process")
    mine = {os.geteuid(), _owner(pid)}
    place = Path(f"/proc/{pid}/root/tmp")
    try:
        found = [p for p in place.glob(f"{_PREFIX}{pid}-*") if p.stat().st_uid in mine]
    except OSError as fault:
        raise AttachError(f"Process {pid} is another user's: ask as that user.") from fault
    folders = [folder for folder in found if (folder / visit.CLAIMED).exists()]
    for folder in folders:
        (folder / visit.STOP).touch()

    def are_left() -> bool:
        remaining = (folder for folder in folders if (folder / visit.CLAIMED).exists())
        return all(_state_in(folder).get("state") == "left" for folder in remaining)

    if not _await(are_left, lambda: not status_of(pid), LEAVE_SECONDS):
        raise AttachError(f"Process {pid} was asked to end its recording and hasn't yet.")
    return bool(folders)


def _await(is_so: Callable[[], bool], is_gone: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, while the process is there; return whether it came to be."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until or is_gone():
            return is_so()
        time.sleep(POLL_S)
    return True


def _state_in(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / visit.STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state


def _ended(pid: int) -> AttachError:
    return AttachError(f"Process {pid} ended meanwhile.", slug="no-process")


def _make_folder(target: Target) -> tuple[int, Path]:
    """Return the folder of both sides in the process' ``/tmp``, and that place, opened."""
    try:
        place = os.open(target.root / "tmp", os.O_RDONLY | os.O_DIRECTORY)
        prefix = f"{_PREFIX}{target.pid}-"
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=f"/proc/self/fd/{place}"))
    except OSError as fault:
        raise AttachError(
            f"Nothing can be written into /tmp of process {target.pid} ({fault.strerror}), through "
            "which it would be spoken to.",
            may_watch=True,
        ) from fault
    _give(folder, target.pid)
    return place, folder


def _give(path: Path, pid: int) -> None:
    """Give a file or folder to the user of a process, where that is another one."""
    owner, group = (int(status_of(pid).get(k, "-1").split()[0]) for k in ("Uid", "Gid"))
    if os.geteuid() != 0 or owner in (-1, 0):
        return
    os.chown(path, owner, group)
    for each in path.rglob("*") if path.is_dir() else ():
        os.chown(each, owner, group)


def _place_of(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin).resolve()
    return origin.parent if spec.submodule_search_locations else origin
