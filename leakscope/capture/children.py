"""Child processes that record themselves: of ``multiprocessing`` and what is built on it, of
``subprocess`` where it starts this same Python, and of ``os.fork``.

A recording begins in a child once it has lived for a moment, in a thread of its own: a child of a
few milliseconds isn't slowed down, and none that still imports is disturbed. So what a child runs
at its start is the standard library alone; the rest of leakscope is imported when it is due.

``multiprocessing`` ends each start in a call of ``Process._bootstrap`` in the child, however the
process was made. While one is started, a stand-in of ours is an attribute of the process object: a
forked child inherits it, to others it crosses as a part of the object's pickle. A program of
``subprocess`` gets a start-up hook by two environment variables (``startup/sitecustomize.py``),
which takes them away again before the program runs. Nothing is left in either module.
"""

from __future__ import annotations

import _thread
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, FunctionType
from typing import Any, NamedTuple

STARTUP = os.path.join(os.path.dirname(__file__), "startup")  # noqa: PTH118, PTH120
VARIABLE = "LEAKSCOPE_CHILD"
"""Carries a placement to a program that ``subprocess`` starts."""
LIVED_S = 0.5
"""A recording begins in a child that has lived so long."""
IMPORTING_S = 30.0
"""After so long a child that still imports is taken to work inside an import."""
LOOKS_S = 0.05
JOIN_S = 3.0
"""So long the end of a child waits for a recording that is just being begun or closed."""
FIRST_RECORDED = 32
"""Children that are all recorded; of those after them each whose number is a power of two: where
there are so many, they are alike."""
LONGEST_NAME = 200
_POOL_WORKER = "multiprocessing.pool.worker"
_UNRECORDED_TARGETS = ("torch.utils.data._utils.worker", "leakscope.capture.workers")
"""Modules of functions whose processes record themselves otherwise: workers of DataLoaders."""
_UNRECORDED_PROGRAMS = ("torch/_inductor/compile_worker",)
"""Helpers of libraries, by a part of a path on their command line: they hold nothing that the user
put there."""


class ChildPlacement(NamedTuple):
    """Where a child records and what it is called: all that crosses into another process."""

    run_path: str
    options: str
    """What :meth:`SessionOptions.to_json` wrote."""
    project_root: str
    begins_by: str
    """The function that begins the recording, ``module:name``: imported when it is due."""
    rank: int = 0
    world_size: int = 1
    attempt: int = 0
    number: int = 0
    """From 1, in the order in which its parent started processes."""
    name: str = ""
    target: str = ""
    start_method: str = ""
    """``fork``, ``spawn``, ``forkserver`` and the like, ``subprocess``, or ``os.fork``."""
    parent: int = 0


class ChildRecording:
    """Records the process that it is made in, from a while after its start to its end."""

    def __init__(self, place: ChildPlacement) -> None:
        self.place = place
        self._pid = os.getpid()
        self._main = _thread.get_ident()
        self._over, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._turn = _thread.allocate_lock()
        self._is_over = self._closes_at_exit = False
        self._due = 0.0
        self._fault = getattr(sys, "last_value", None)
        self._session: Any = None
        self.calls = 1
        """What a pool's worker was handed last: so many calls at once."""

    def start(self, *, closes_at_exit: bool = False) -> ChildRecording:
        """Begin to wait; raises nothing."""
        global _recording
        _recording = self
        self._closes_at_exit = closes_at_exit
        self._due = time.monotonic() + LIVED_S
        self._over.acquire()
        self._ended.acquire()
        self.go_on()
        return self

    def begin(self) -> None:
        """Begin to record now, if that isn't done yet; raises nothing of ours."""
        if not self._turn.acquire(timeout=JOIN_S):
            return
        try:
            if self._is_over or self._session is not None or os.getpid() != self._pid:
                return
            self._is_over = True  # it is tried once
            module, _, name = self.place.begins_by.partition(":")
            import importlib

            self._session = getattr(importlib.import_module(module), name)(self.place)
            if self._session is not None and self._closes_at_exit:
                import atexit

                atexit.register(self._close_at_exit)
        except Exception:
            if os.environ.get("LEAKSCOPE_STRICT") == "1":
                raise
        finally:
            self._turn.release()

    def end_task(self) -> None:
        """Called when a pool's worker has done what it was handed."""
        session = self._session
        if session is not None:
            session.end_task(self.calls)

    def close(self, status: str, exit_code: int = 0, exception: str = "") -> None:
        """Record how the process ended; raises nothing, and no interrupt of the program's."""
        if os.getpid() != self._pid:
            return
        self._is_over = True
        try:
            self._over.release()
        except RuntimeError:
            return  # closed already
        if not self._turn.acquire(timeout=JOIN_S):
            return
        try:
            session, self._session = self._session, None
            if session is not None:
                session.close(
                    status=status, exit_code=exit_code, exception=exception, for_good=True
                )
        except BaseException as fault:
            # The process is over: without us a handler of its signals would have met nobody.
            if isinstance(fault, Exception) and os.environ.get("LEAKSCOPE_STRICT") == "1":
                raise
        finally:
            self._turn.release()

    def pause(self) -> bool:
        """End the thread that waits, before a fork; return whether there was one to end."""
        if self._is_over or os.getpid() != self._pid or not self._ended.locked():
            return False
        self._over.release()
        return self._ended.acquire(timeout=JOIN_S)

    def go_on(self) -> None:
        """Wait in a thread, which wasn't there yet or was ended by :meth:`pause`."""
        try:
            _thread.start_new_thread(self._wait, ())
        except Exception:  # no thread is left for us
            self._ended.release()

    def _wait(self) -> None:
        try:
            latest = self._due + IMPORTING_S
            while not self._over.acquire(timeout=max(self._due - time.monotonic(), LOOKS_S)):
                now = time.monotonic()
                if now >= self._due and (now >= latest or not self._imports()):
                    self.begin()
                    return
        except BaseException:  # the interpreter is shutting down
            return
        finally:
            _forget_this_thread()
            if self._ended.locked():
                self._ended.release()

    def _imports(self) -> bool:
        return is_importing(sys._current_frames().get(self._main))

    def _close_at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        if error is None or error is self._fault:
            self.close("ended")  # the exit code is unknown here
        elif isinstance(error, KeyboardInterrupt):
            self.close("interrupted", 130, "KeyboardInterrupt")
        else:
            self.close("exception", 1, f"{type(error).__name__}: {error}")


_recording: ChildRecording | None = None


def begin_pending() -> bool:
    """Begin the recording of this process, if it is a child that waits; return whether it did."""
    recording = _recording
    if recording is None or recording._pid != os.getpid() or recording._session is not None:
        return False
    recording.begin()
    return recording._session is not None


def give_up_pending() -> None:
    """Stop here: the process starts a recording itself."""
    if _recording is not None:
        _recording._is_over = True


def run_recorded(place: ChildPlacement, process: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for ``Process._bootstrap`` in the child: the same, with a recording around it."""
    vars(process).pop("_bootstrap", None)
    if _starting is not None:
        _starting.clear()
    recording = ChildRecording(place).start()
    _adopt(place)
    _count_tasks(process, recording)
    if place.start_method != "fork" and "torch" in sys.modules:
        recording.begin()  # it took seconds to come so far, and may make loaders at once
    code: Any = 1
    try:
        code = process._bootstrap(*args, **kwargs)
        return code
    finally:
        is_plain = isinstance(code, int) and not code
        recording.close("completed" if is_plain else "exit", code if isinstance(code, int) else 1)


class _Queue:
    """A queue of a worker's: the one from which it takes tasks, or the one that gets its results.

    A result is the end of a task, and a pool hands out many calls at once.
    """

    def __init__(self, queue: Any, recording: ChildRecording) -> None:
        self._queue, self._recording = queue, recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, result: object) -> None:
        try:
            self._queue.put(result)
        except BaseException as error:
            _hide_frame(error)
            raise
        self._recording.end_task()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        try:
            task = self._queue.get(*args, **kwargs)
        except BaseException as error:
            _hide_frame(error)
            raise
        self._recording.calls = calls_of(task)
        return task


def calls_of(task: object) -> int:
    """Return how many calls of the program's function a task of a pool or an executor is."""
    if type(task) is tuple and len(task) == _TASK_OF_POOL:
        function, arguments = task[2:4]
        pool = vars(sys.modules.get("multiprocessing.pool", sys))
        is_of_many = any(function is pool.get(name) for name in ("mapstar", "starmapstar"))
        chunk = arguments[0][1] if is_of_many else ()
    else:
        # A call item of concurrent.futures or loky, and the partial function that they make.
        function, arguments = getattr(task, "fn", None), getattr(task, "args", ())
        is_of_many = (
            type(function) is functools.partial
            and type(function.func) is FunctionType
            and function.func.__name__ == "_process_chunk"
        )
        chunk = arguments[0] if is_of_many and arguments else ()
    return len(chunk) if type(chunk) in (tuple, list) and chunk else 1


_TASK_OF_POOL = 5
"""Number of the job, of the task in it, function, arguments, keyword arguments."""


def _count_tasks(process: Any, recording: ChildRecording) -> None:
    """Have a pool's worker report each finished task, an executor's how many calls each is."""
    args = getattr(process, "_args", ())
    if type(args) is not tuple or len(args) < 2:
        return
    tasks, results, *more = args
    if recording.place.target == _POOL_WORKER:
        process._args = (_Queue(tasks, recording), _Queue(results, recording), *more)
    elif recording.place.target.endswith("._process_worker"):
        process._args = (_Queue(tasks, recording), results, *more)


def calls_at_once() -> int:
    """Return how many calls this worker of an executor was handed last."""
    return 1 if _recording is None else _recording.calls


def run_program(place: Sequence[Any]) -> None:
    """Record a program of ``subprocess`` from its start; the arguments are its placement."""
    known = ChildPlacement(*place)._replace(target=_program())
    ChildRecording(known).start(closes_at_exit=True)


class ChildHooks:
    """Has the children that this process starts record themselves."""

    def __init__(self, place: ChildPlacement) -> None:
        self.place = place
        self._pid = os.getpid()
        self._count = 0
        self._patched: list[tuple[type, str, Any, Any]] = []
        self._watch: Any = None

    def install(self, *, watches: bool = True) -> None:
        """Watch for processes that are started, now or as soon as the program can start one.

        Unless it ``watches``, which takes imports, by what the program has imported by now.
        """
        global _hooks
        arrivals: dict[str, Callable[[Any], None]] = {
            "multiprocessing.process": lambda module: self._patch(
                module.BaseProcess, "start", self._wrap_start
            ),
            "subprocess": lambda module: self._patch(
                module.Popen, "_execute_child", self._wrap_execute
            ),
        }
        for name, follow in list(arrivals.items()):
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and not getattr(spec, "_initializing", False):
                follow(module)
                del arrivals[name]
        if arrivals and watches:
            from leakscope.capture.torch_hooks.patching import ImportWatch

            self._watch = ImportWatch(arrivals)
            self._watch.start()
        if _hooks is not None and _hooks._pid == self._pid:
            self._count = _hooks._count
        _hooks = self
        _listen_for_forks()

    def uninstall(self) -> None:
        """Leave both modules as they were found."""
        global _hooks
        if self._watch is not None:
            self._watch.stop()
        for owner, name, original, replaced in self._patched:
            if owner.__dict__.get(name) is replaced:
                setattr(owner, name, original)
        self._patched.clear()
        if _hooks is self:
            _hooks = None

    @property
    def is_live(self) -> bool:
        """Whether this is the process that they were installed in."""
        return self._pid == os.getpid() and _hooks is self

    def adopt(self, place: ChildPlacement) -> None:
        """Continue in a forked child, whose own children are recorded as well."""
        self._pid, self._count = os.getpid(), 0
        self.place = place

    def next(self, **facts: Any) -> ChildPlacement | None:
        """Return where the next child records; None where it is one of very many."""
        self._count += 1
        if self._count > FIRST_RECORDED and self._count & (self._count - 1):
            return None
        return self.place._replace(number=self._count, parent=self._pid, **facts)

    def _patch(self, owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
        original = owner.__dict__.get(name)
        if original is not None:
            replaced = wrap(original)
            setattr(owner, name, replaced)
            self._patched.append((owner, name, original, replaced))

    def _wrap_start(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def start(process: Any, *args: Any, **kwargs: Any) -> None:
            with _no_fork_of_its_own():
                is_marked = self.is_live and self._mark(process)
                try:
                    original(process, *args, **kwargs)
                except BaseException as error:
                    _hide_frame(error)
                    raise
                finally:
                    if is_marked:
                        vars(process).pop("_bootstrap", None)

        return start

    def _mark(self, process: Any) -> bool:
        from leakscope.model.errors import ours

        try:
            target = getattr(process, "_target", None)
            if _module_of(target) in _UNRECORDED_TARGETS or "_bootstrap" in vars(process):
                return False
            method = str(getattr(process, "_start_method", "") or _default_method())
            if method != "fork" and not is_importable():
                return False
            facts = {"name": str(process.name), "target": _described(process, target)}
            place = self.next(start_method=method, **facts)
            if place is None:
                return False
            vars(process)["_bootstrap"] = functools.partial(run_recorded, place, process)
        except ours(Exception):
            return False
        return True

    def _wrap_execute(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _execute_child(popen: Any, *args: Any, **kwargs: Any) -> None:
            with _no_fork_of_its_own():
                if self.is_live:
                    args = self._with_hook(args)
                try:
                    original(popen, *args, **kwargs)
                except BaseException as error:
                    _hide_frame(error)
                    raise

        return _execute_child

    def _with_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        from leakscope.model.errors import ours

        try:
            words, executable, environment, shell = args[0], args[1], args[6], args[9]
            known = dict(os.environ if environment is None else environment)
            if shell or VARIABLE in known or b"PYTHONPATH" in known:
                return args
            is_single = isinstance(words, (str, bytes, os.PathLike))
            command = [os.fsdecode(word) for word in ([words] if is_single else words)]
            program = os.path.basename(command[0]) if command else ""  # noqa: PTH119
            if program not in _STARTS_WORKERS and not _is_this_python(command, executable, known):
                return args
            place = self.next(start_method="subprocess", name=_short(command))
            if place is None:
                return args
            changed = with_hook(known, place)
            return (*args[:6], changed, *args[7:])
        except ours(Exception):
            return args


def with_hook(environment: Mapping[Any, Any], place: ChildPlacement) -> dict[Any, Any]:
    """Return an environment in which Python begins with the start-up hook."""
    path = environment.get("PYTHONPATH")
    carried = {"root": os.path.dirname(os.path.dirname(os.path.dirname(__file__)))}  # noqa: PTH120
    carried |= {"path": path, "place": list(place)}  # type: ignore[dict-item]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(filter(None, (STARTUP, path))) if path else STARTUP,
        VARIABLE: json.dumps(carried),
    }


_hooks: ChildHooks | None = None
_starting: set[int] = set()
"""Threads that start a process otherwise than by ``os.fork`` of the program's own."""
_paused: list[ChildRecording] = []
_pending: dict[Callable[[], object], object] = {}
"""What pending calls of the interpreter call, kept as long as they may."""
_is_listening = False
WARNS_OF_FORKS = sys.version_info >= (3, 12)
"""From then on ``os.fork`` warns where a process has several threads."""


def _listen_for_forks() -> None:
    global _is_listening
    if not _is_listening and hasattr(os, "register_at_fork"):
        _is_listening = True
        os.register_at_fork(after_in_child=_forked, after_in_parent=_count_fork)
        if WARNS_OF_FORKS:
            os.register_at_fork(before=_pause_for_fork, after_in_parent=_go_on_after_fork)


def _count_fork() -> None:
    if _hooks is not None and _thread.get_ident() not in _starting:
        _hooks._count += _hooks.is_live  # what `_forked` has counted in the child alone


def _pause_for_fork() -> None:
    if _recording is not None and _recording.pause():
        _paused.append(_recording)


def _go_on_after_fork() -> None:
    if _paused:
        call_after_fork(_resume_paused)


def _resume_paused() -> None:
    while _paused:
        _paused.pop().go_on()


def call_after_fork(function: Callable[[], object]) -> None:
    """Have a function called once ``os.fork`` has returned, which counts threads before."""
    import ctypes

    def call(_: object = None) -> int:
        function()
        return 0

    _pending[function] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    ctypes.pythonapi.Py_AddPendingCall(_pending[function], None)


def _forked() -> None:
    """Record a child of ``os.fork``; it may go on to do anything, so nothing is done but to wait.

    One that ``multiprocessing`` or ``subprocess`` forks is theirs.
    """
    hooks = _hooks
    if hooks is None or _thread.get_ident() in _starting:
        return
    with suppress(Exception):
        place = hooks.next(start_method="os.fork", name="", target=_program())
        if place is not None and place.parent == os.getppid():
            ChildRecording(place).start(closes_at_exit=True)
            hooks.adopt(place)


def _adopt(place: ChildPlacement) -> None:
    if _hooks is not None:
        _hooks.adopt(place)  # they were inherited
        return
    with suppress(Exception):
        ChildHooks(place).install(watches=False)


@contextmanager
def _no_fork_of_its_own() -> Iterator[None]:
    me = _thread.get_ident()
    is_first = me not in _starting
    _starting.add(me)
    try:
        yield
    finally:
        if is_first:
            _starting.discard(me)


def _hide_frame(error: BaseException) -> None:
    """Take the frame of a wrapper off a traceback before it goes on."""
    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        error.__traceback__ = error.__traceback__.tb_next


def is_importing(frame: FrameType | None) -> bool:
    """Return whether code runs inside an import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _forget_this_thread() -> None:
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", {})
    if type(active.get(_thread.get_ident())).__name__ == "_DummyThread":
        active.pop(_thread.get_ident(), None)


def _module_of(target: object) -> str:
    module = getattr(target, "__module__", None)
    return module if isinstance(module, str) else ""


def _described(process: Any, target: object) -> str:
    args = getattr(process, "_args", ())
    if _module_of(target) == "torch.multiprocessing.spawn" and args and callable(args[0]):
        target = args[0]  # its own wrapper gets what the user runs
    if target is None:
        kind = type(process)
        return f"{kind.__module__}.{kind.__qualname__}.run"[:LONGEST_NAME]
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    return f"{_module_of(target)}.{name}".lstrip(".")[:LONGEST_NAME]


def _default_method() -> str:
    import multiprocessing

    return str(multiprocessing.get_start_method())


def is_importable() -> bool:
    """Return whether a new interpreter with this one's path finds leakscope: a child must."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and find("leakscope", None) is not None:
            return True
    return False


def _is_this_python(command: Sequence[str], executable: Any, environment: Any) -> bool:
    """Return whether a command runs this interpreter, or a script that begins with its path."""
    import shutil

    if not command or not sys.executable:
        return False
    if any(part in word for part in _UNRECORDED_PROGRAMS for word in command):
        return False
    first = os.fsdecode(executable) if executable is not None else command[0]
    if "leakscope" in (os.path.basename(first), *command[1:4]):  # noqa: PTH119
        return False
    path = environment.get("PATH")
    found = first if os.path.dirname(first) else shutil.which(first, path=path)  # noqa: PTH120
    if not found:
        return False
    own = os.path.realpath(sys.executable)
    if os.path.realpath(found) == own:
        return not _is_isolated(command[1:])
    interpreter, *options = _first_line(found) or [""]
    if os.path.basename(interpreter) == "env" and options:  # noqa: PTH119
        interpreter, *options = options
        interpreter = shutil.which(interpreter, path=path) or ""
    return bool(interpreter) and os.path.realpath(interpreter) == own and not _is_isolated(options)


_STARTS_WORKERS = frozenset({"raylet"})
"""Programs that are no Python, and start the workers of a library with their own environment."""


def _first_line(path: str) -> list[str]:
    """Return the interpreter of a script and its options; empty where it is none."""
    with open(path, "rb") as stream:  # noqa: PTH123
        line = stream.read(256)
    return line[2:].split(b"\n")[0].decode(errors="replace").split() if line[:2] == b"#!" else []


def _is_isolated(words: Sequence[str]) -> bool:
    """Return whether an interpreter's options have it pass over the environment, or start bare."""
    for word in words:
        if not word.startswith("-") or word in ("-", "-c", "-m"):
            return False
        if not word.startswith("--") and {"I", "E", "S"} & set(word.split("W")[0].split("X")[0]):
            return True
    return False


def _short(command: Sequence[str]) -> str:
    words = list(command)
    if os.path.realpath(words[0]) == os.path.realpath(sys.executable):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c", "-"):
            words = words[1:]
    if words[:1] == ["-m"]:
        return " ".join(words[:2])
    return os.path.basename(words[0])[:LONGEST_NAME] if words else "python"  # noqa: PTH119


def _program() -> str:
    words = list(getattr(sys, "orig_argv", None) or sys.argv)
    return " ".join([os.path.basename(words[0]), *words[1:]])[:LONGEST_NAME] if words else ""  # noqa: PTH119
