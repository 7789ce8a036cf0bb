"""What ``leakscope attach`` does inside the process: it comes, records, and leaves no trace.

This file is run by path, in a thread of its own (:mod:`leakscope.capture.attach` sends it there),
in a process that may not have leakscope installed, of another version of Python perhaps. So it
imports nothing of the package before the package can be found, and is no module itself.

The thread is not one of :mod:`threading`'s. In the main thread the same work could come in between
any two instructions of the program: under a lock of its own, or in the middle of an import.

Both sides communicate by a folder. ``request.json`` is what to do; whoever renames it first, the
visitor or who gives up waiting, has decided. ``state.json`` is how far it came, and a file ``stop``
in the folder ends the recording. Where ``keeper`` is no longer locked, the attacher is gone.

In the standard library modules stay imported that were: some have registered themselves in the
interpreter, which can't be taken back, and are shared with the program by now.
"""

from __future__ import annotations

import _thread
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

REQUEST, CLAIMED, STATE, STOP, KEEPER = (
    "request.json", "claimed.json", "state.json", "stop", "keeper",
)  # fmt: skip
POLL_S = 0.2
CALM_S = 5.0
"""So long a first or last look waits for a backward pass to be over."""
NAME = "leakscope"
_UNWANTED = "typing_extensions"
"""msgspec takes it if it can; it changes :mod:`typing` for good, and adds nothing since 3.11."""
OLDEST = (3, 10)


def come(folder: str, page: int) -> None:
    """Do what a folder asks for, unless the requester has given up.

    ``page`` is the address of the memory that a debugger left behind; 0 where there is none.

    """
    try:
        os.rename(os.path.join(folder, REQUEST), os.path.join(folder, CLAIMED))  # noqa: PTH104, PTH118
        with open(os.path.join(folder, CLAIMED), encoding="utf-8") as stream:  # noqa: PTH118, PTH123
            wanted = json.load(stream)
    except (OSError, ValueError):
        free(page)
        return
    Visit(folder, wanted, page).make()


def free(page: int) -> None:
    """Give the memory back in which the debugger has put the statement."""
    if page:
        try:
            import ctypes

            unmap = ctypes.CDLL(None).munmap
            unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            unmap(page, 4096)
        except Exception:
            return


class Visit:
    """A recording that begins and ends while the program runs."""

    def __init__(self, folder: str, wanted: dict[str, Any], page: int) -> None:
        self._folder, self._wanted, self._page = folder, wanted, page
        self._pid = os.getpid()
        self._modules = set(sys.modules)
        self._importers = set(sys.path_importer_cache)
        self._carrier = Carrier(wanted["places"])
        self._session: Any = None
        self._deadline, self._next = float("inf"), 0.0
        self._ending = _thread.allocate_lock()
        self._fault = getattr(sys, "last_value", None)
        self._state: dict[str, Any] = {}

    def make(self) -> None:
        """Begin to record; a thread of the session's ends it when it is to end."""
        try:
            self._begin()
        except BaseException as fault:
            self.write_state("failed", why=self._why(fault))
            self.leave()
        finally:
            forget_this_thread()

    def look(self) -> None:
        """End the recording if it is to end."""
        now = time.monotonic()
        if now < self._next or os.getpid() != self._pid:
            return
        self._next = now + POLL_S
        if self._is_over():
            self._end("detached")
            self.leave()

    def leave(self) -> None:
        """Put everything back as it was."""
        try:
            self._put_back()
        finally:
            self._session = None
            free(self._page)
            self.write_state("left")
            if not self._is_kept():
                self._remove_folder()

    def _put_back(self) -> None:
        import atexit

        atexit.unregister(self._at_exit)
        if self._carrier in sys.meta_path:
            sys.meta_path.remove(self._carrier)
        added = [
            name for name in set(sys.modules) - self._modules if self._was_imported_by_visit(name)
        ]
        taken_back = self._modules_not_shared(added)
        modules = [sys.modules[name] for name in taken_back if name.partition(".")[0] == NAME]
        forget_fork_hooks(modules)
        forget_kinds_of_records(modules)
        for name in taken_back:
            sys.modules.pop(name, None)
        for place in set(sys.path_importer_cache) - self._importers:
            if self._carrier.carries(place):
                sys.path_importer_cache.pop(place, None)
        forget_this_thread()

    def write_state(self, state: str, **facts: Any) -> None:
        """Write down how far it came."""
        self._state = {**self._state, **facts, "state": state, "pid": self._pid}
        path = os.path.join(self._folder, STATE)  # noqa: PTH118
        try:
            with open(path + ".new", "w", encoding="utf-8") as stream:  # noqa: PTH123
                json.dump(self._state, stream)
            os.replace(path + ".new", path)  # noqa: PTH105
        except OSError:
            return

    def _begin(self) -> None:
        if sys.version_info < OLDEST:
            raise Refusal(
                f"it runs Python {sys.version_info[0]}.{sys.version_info[1]}, and leakscope needs "
                f"{OLDEST[0]}.{OLDEST[1]} or newer."
            )
        if f"{sys.version_info[0]}.{sys.version_info[1]}" != self._wanted["python"]:
            self._prefer_own()
        sys.meta_path.insert(0, self._carrier)
        from leakscope.model import __version__

        if __version__ != self._wanted["version"]:
            raise Refusal(
                f"it has imported leakscope {__version__} already, and this is "
                f"{self._wanted['version']}: attach with that version."
            )
        from leakscope.capture.options import SessionOptions
        from leakscope.capture.session import current_session
        from leakscope.capture.workers import start_session
        from leakscope.heap.graph import engine_name

        running = current_session()
        if running is not None and running.is_live:
            raise Refusal(f"it is recorded already, into {running.run_path}.")
        options = SessionOptions.from_json(json.dumps(self._wanted["options"]))
        self._wait_for_calm()
        self._session = session = start_session(options)
        import atexit

        atexit.register(self._at_exit)
        facts = {"run": str(session.run_path), "engine": engine_name()}
        self.write_state("recording", **facts)
        if self._wanted["once"]:
            session.take_snapshot()
            self._end("detached")
            self.leave()
            return
        if self._wanted["seconds"] is not None:
            self._deadline = time.monotonic() + self._wanted["seconds"]
        session.on_wake(self.look)

    def _prefer_own(self) -> None:
        """Use the leakscope that is installed here, if it is the same: its C parts fit."""
        from importlib import metadata

        try:
            installed = metadata.version(NAME)
        except metadata.PackageNotFoundError:
            return
        if installed == self._wanted["version"]:
            self._carrier.places.pop(NAME, None)

    def _is_over(self) -> bool:
        is_stopped = os.path.exists(os.path.join(self._folder, STOP))  # noqa: PTH110, PTH118
        return is_stopped or time.monotonic() >= self._deadline or not self._is_kept()

    def _is_kept(self) -> bool:
        """Return whether the attaching process lives; without it the recording ends itself."""
        try:
            import fcntl

            with open(os.path.join(self._folder, KEEPER), "rb") as stream:  # noqa: PTH118, PTH123
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (ImportError, OSError):
            return os.path.exists(os.path.join(self._folder, CLAIMED))  # noqa: PTH110, PTH118
        return False

    def _remove_folder(self) -> None:
        """Remove what both sides spoke through, since the other one is gone; no recording."""
        try:
            ours = {REQUEST, CLAIMED, STATE, STOP, KEEPER}
            for name in ours.intersection(os.listdir(self._folder)):  # noqa: PTH208
                os.unlink(os.path.join(self._folder, name))  # noqa: PTH108, PTH118
            os.rmdir(self._folder)  # noqa: PTH106
        except OSError:  # a recording lies there
            return

    def _end(self, status: str, **ending: Any) -> None:
        """Close the recording, at a moment at which nothing of ours is under way; once."""
        if os.getpid() != self._pid or not self._ending.acquire(timeout=60.0):
            return
        try:
            session = self._session
            if session is not None and session.is_live:
                self._wait_for_calm()
                gate, until = session.gate, time.monotonic() + CALM_S

                def close() -> None:
                    session.close(status=status, **ending)

                while not gate.take_turn(close) and session.is_live:
                    if not gate.is_open or time.monotonic() > until:
                        close()
                    time.sleep(0.01)
                self.write_state("ended", how=status, trouble=session.trouble or "")
        except BaseException as fault:
            self.write_state("ended", how=status, trouble=self._why(fault))
        finally:
            self._ending.release()

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        if error is None or error is self._fault:
            self._end("completed", for_good=True)
        else:
            kind, code = type(error).__name__, 130 if isinstance(error, KeyboardInterrupt) else 1
            status = "interrupted" if code == 130 else "exception"
            self._end(status, exit_code=code, exception=f"{kind}: {error}", for_good=True)

    def _wait_for_calm(self) -> None:
        """Wait until no thread is inside a backward pass, which changes what a census walks."""
        from leakscope.capture.unobservable import changes_graphs
        from leakscope.heap.pausing import frames_of_other_threads, is_collecting, keeping_lock

        def is_calm() -> bool:
            return not is_collecting() and not changes_graphs(frames_of_other_threads())

        until = time.monotonic() + CALM_S
        while time.monotonic() < until:
            if keeping_lock(is_calm):
                return
            time.sleep(0.001)

    def _why(self, fault: BaseException) -> str:
        if isinstance(fault, Refusal):
            return str(fault)
        name = getattr(fault, "name", None) or ""
        if isinstance(fault, ImportError) and not name.startswith(NAME):
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            return (
                f"its Python {version} has no {name or 'library that leakscope needs'} "
                f"({fault}), and the one here is built for Python {self._wanted['python']}: "
                f"install leakscope where the process runs, or attach from Python {version}."
            )
        if type(fault).__module__.startswith(NAME):
            return str(fault)
        return f"{type(fault).__name__}: {fault}."

    def _was_imported_by_visit(self, name: str) -> bool:
        """Return whether a module is the package's, or a library that only it needed."""
        top = name.partition(".")[0]
        return top == NAME or top in self._carrier.places or name in self._carrier.requested

    def _modules_not_shared(self, names: Sequence[str]) -> list[str]:
        """Return those of these modules that no module of the program has come to use."""
        ours = set(names)
        tops = {name.partition(".")[0] for name in names} - {NAME}
        shared = set()
        for name, module in list(sys.modules.items()):
            if name in ours or type(module) is not ModuleType:
                continue
            for value in list(vars(module).values()):
                home = value.__name__ if type(value) is ModuleType else _module_of(value)
                top = home.partition(".")[0]
                if top in tops:
                    shared.add(top)
        return [name for name in names if name.partition(".")[0] not in shared]


class Refusal(Exception):  # noqa: N818
    """Why nothing is recorded, in the words of a sentence about the process."""


class Carrier:
    """Finds leakscope and the libraries it needs where this process has none of its own.

    The program doesn't see them: only an import that leakscope itself makes is answered.
    """

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        """Top-level packages and the folders in which they lie."""
        self.requested: set[str] = set()
        """Libraries that leakscope was the first to import, found by the program's own path."""
        self._busy = False

    def carries(self, place: str) -> bool:
        """Return whether a path is one of those that were searched for leakscope alone."""
        return any(
            place == folder or place.startswith(os.path.join(folder, top))  # noqa: PTH118
            for top, folder in self.places.items()
        )

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module lies; None where it isn't leakscope that imports it."""
        if self._busy or not self._is_ours(sys._getframe(1)):
            return None
        top = name.partition(".")[0]
        if top == NAME and NAME in self.places:
            return PathFinder.find_spec(name, path or [self.places[NAME]], target)
        if top in getattr(sys, "stdlib_module_names", ()):
            return None
        if top == _UNWANTED and sys.version_info >= (3, 11):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        found = self._of_the_program(name, path, target)
        if found is not None:
            self.requested.add(name)
            return found
        if path is None and name in self.places:
            return PathFinder.find_spec(name, [self.places[name]], target)
        return None

    def _of_the_program(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        self._busy = True
        try:
            for finder in list(sys.meta_path):
                find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
                found = None if find is None else find(name, path, target)
                if found is not None:
                    return found
        finally:
            self._busy = False
        return None

    def _is_ours(self, frame: Any) -> bool:
        """Return whether an import, and no other search, is one of leakscope's or its libraries."""
        if "importlib._bootstrap" not in frame.f_code.co_filename:
            return False
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        name = "" if frame is None else str(frame.f_globals.get("__name__"))
        top = name.partition(".")[0]
        return top == NAME or top in self.places


def forget_fork_hooks(modules: Sequence[ModuleType]) -> None:
    """Have the interpreter call nothing of these modules around a fork any more, by its lists."""
    functions = [value for value in _made_in(modules) if type(value) is FunctionType]
    known = {id(function) for function in functions}
    for holder in gc.get_referrers(*functions) if functions else ():
        if type(holder) is list and holder is not functions and all(map(callable, holder)):
            holder[:] = [each for each in holder if id(each) not in known]


def forget_kinds_of_records(modules: Sequence[ModuleType]) -> None:
    """Have msgspec forget which records of these modules it can decode: it keeps them for good."""
    kinds = [value for value in _made_in(modules) if type(value).__name__ == "StructMeta"]
    sets = [each for each in gc.get_referrers(*kinds) if type(each) is frozenset] if kinds else []
    for holder in gc.get_referrers(*sets) if sets else ():
        if type(holder) is dict:
            for known in sets:
                holder.pop(known, None)


def _made_in(modules: Sequence[ModuleType]) -> list[object]:
    return [
        value
        for module in modules
        for value in vars(module).values()
        if _module_of(value) == module.__name__
    ]


def forget_this_thread() -> None:
    """Hide this thread from the lists of :mod:`threading`."""
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    if type(active.get(_thread.get_ident())).__name__ == "_DummyThread":
        active.pop(_thread.get_ident(), None)


def _module_of(value: object) -> str:
    """Return where a class or function is from, without running anything of the program's."""
    kind = type(value)
    if kind is FunctionType:
        name: object = value.__module__
    elif issubclass(kind, type):
        name = type.__dict__["__dict__"].__get__(value).get("__module__")
    else:
        return ""
    return name if type(name) is str else ""
