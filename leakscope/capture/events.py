"""Events that are counted by themselves: saves, compilations, log calls, figures, new optimizers;
and what the program's own cleaning calls take and bring.

What a program does now and then may be what its memory grows with. Counted is where a library
passes through anyway: functions of its own that nobody imports from it are wrapped, so that
``torch.save`` and its like stay what they are. Only of logging, optimizers, schedulers and PIL a
method of a public class is. A wrapper adds one to a number and keeps nothing. The collector and the
compiler keep count themselves, and are only read.

No lock is taken: a signal's handler, a finalizer or a forked child may come in between, and one
count that two threads lose together harms nobody.

Exceptions that the program catches are counted from CPython 3.12 on. ``sys.monitoring`` calls for
each that any library handles, which nobody can switch off one by one: a loop that looks up
attributes in vain would pay for it. So what is listened to are instructions, of the program's own
functions that have an ``except``, and each that begins no clause is switched off when it has run.
"""

from __future__ import annotations

import dis
import functools
import gc
import logging
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import msgspec

from leakscope.capture.sites import NOT_USERS, Site, belongs_to_user, call_site
from leakscope.capture.torch_hooks.patching import (
    LatePatches,
    PatchedMethod,
    opaque,
    surrounded,
    without_our_frame,
)
from leakscope.heap.compiled_code import (
    MOST_FUNCTIONS,
    captured_graphs,
    ends_idle_workers,
    functions,
    limits,
    spoken_name,
    workers,
)
from leakscope.heap.pausing import frames_of_other_threads
from leakscope.model import gauge
from leakscope.model.boundary import Event
from leakscope.model.census import PACKAGES, package_paths
from leakscope.model.errors import OUR_FILES, ours
from leakscope.model.record import CleaningCall, CompilationRecord, CompiledCodeRecord
from leakscope.probes.cuda import AcceleratorProbe, CudaProbe
from leakscope.probes.interpreter import CollectionTimes

MOST_CODES = 5000
MOST_MODULES = 20_000
_METHODS = (staticmethod, classmethod)
_ATTRIBUTES = type.__dict__["__dict__"].__get__
"""Of a class, asking no metaclass of the program's."""
_TOOLS = (3, 4)
"""Numbers that :mod:`sys.monitoring` has given to no kind of tool."""
MOST_COMPILATIONS = 500
"""More are counted, not described."""
LONGEST_REASON = 300
MOST_SHAPES = 2048
"""More aren't distinguished."""
LEAST_ERROR = 400
"""HTTP's errors, the client's and the server's, begin with this status."""
COMPILER = "torch._dynamo.utils"
_LIMIT = re.compile(r"(recompile|cache)[ _]?(size)?[ _]?limit", re.IGNORECASE)
"""Of what failed: nothing was compiled, because there is room for no more entries."""
_FRAME = re.compile(r"Line: (\d+), Name: (.*?), Filename: (.*)", re.DOTALL)
_COMPARED = re.compile(r"(==|!=|<=|>=|<|>|\bis\b|\bin\b).*")
"""What follows in a guard may be a value of the program's, which no recording holds."""


class Passage(NamedTuple):
    """A function of a library through which an event passes."""

    module: str
    owner: str
    """The class that has it; empty for a function of the module."""
    name: str
    event: Event
    status_at: int = 0
    """Which argument says how a request is answered: from status 400 on it is an event. 0 where
    every call is one."""


_TABLE: tuple[tuple[Event, str, str], ...] = (
    (Event.SAVE, "torch.serialization", "_save _legacy_save"),
    (Event.LOAD, "torch.serialization", "_load _legacy_load"),
    (Event.SAVE, "safetensors.torch", "serialize_file"),
    (Event.SAVE, "safetensors.numpy", "serialize_file"),
    (Event.SAVE, "torch.distributed.checkpoint.state_dict_saver", "_save_state_dict"),
    (Event.LOAD, "torch.distributed.checkpoint.state_dict_loader", "_load_state_dict"),
    (
        Event.ASYNC_SAVE,
        "torch.distributed.checkpoint._async_thread_executor",
        "_ThreadBasedAsyncCheckpointExecutor.execute_save",
    ),
    (
        Event.ASYNC_SAVE,
        "torch.distributed.checkpoint._async_process_executor",
        "_ProcessBasedAsyncCheckpointExecutor.execute_save",
    ),
    (Event.LOG, "logging", "Logger.makeRecord"),
    (Event.TRACKER_CALL, "torch.utils.tensorboard.writer", "FileWriter.add_event"),
    (Event.TRACKER_CALL, "wandb.sdk.wandb_run", "Run._log"),
    (
        Event.TRACKER_CALL,
        "mlflow.tracking._tracking_service.client",
        "TrackingServiceClient.log_metric TrackingServiceClient.log_batch",
    ),
    (Event.FIGURE, "matplotlib.backend_bases", "FigureCanvasBase.print_figure"),
    (Event.IMAGE, "PIL.Image", "Image.save"),
    (Event.OPTIMIZER, "torch.optim.optimizer", "Optimizer.__init__"),
    (
        Event.SCHEDULER,
        "torch.optim.lr_scheduler",
        "LRScheduler.__init__ ReduceLROnPlateau.__init__",
    ),
    (Event.LOADER_ITERATOR, "torch.utils.data.dataloader", "_BaseDataLoaderIter.__init__"),
    (
        Event.NEW_SHAPE,
        "torch.utils.data.dataloader",
        "_SingleProcessDataLoaderIter._next_data _MultiProcessingDataLoaderIter._next_data",
    ),
    (Event.THREAD, "threading", "_start_new_thread _start_joinable_thread"),
    (Event.PROCESS, "subprocess", "Popen._execute_child"),
    (Event.PROCESS, "multiprocessing.util", "spawnv_passfds"),
    (Event.PROCESS, "multiprocessing.popen_forkserver", "Popen._launch"),
    (Event.REQUEST, "uvicorn.protocols.http.h11_impl", "RequestResponseCycle.run_asgi"),
    (Event.REQUEST, "uvicorn.protocols.http.httptools_impl", "RequestResponseCycle.run_asgi"),
    (Event.REQUEST, "aiohttp.web_protocol", "RequestHandler._handle_request"),
    (Event.REQUEST, "werkzeug.serving", "WSGIRequestHandler.run_wsgi"),
    (Event.REQUEST, "wsgiref.handlers", "BaseHandler.run"),
    (Event.REQUEST, "http.server", "BaseHTTPRequestHandler.parse_request"),
    (Event.REQUEST, "gunicorn.workers.sync", "SyncWorker.handle_request"),
    (Event.REQUEST, "gunicorn.workers.gthread", "ThreadWorker.handle_request"),
    (Event.REQUEST, "hypercorn.asyncio.task_group", "_handle"),
    (Event.REQUEST, "hypercorn.trio.task_group", "_handle"),
    (Event.REQUEST, "grpc._server", "_call_behavior"),
    (Event.TASK, "celery.backends.base", "Backend.mark_as_done Backend.mark_as_failure"),
    (Event.TASK, "rq.worker.base", "BaseWorker.perform_job"),
    (Event.TASK, "rq.worker", "Worker.perform_job"),
    (Event.TASK, "dramatiq.worker", "_WorkerThread.process_message"),
    (Event.FAILED_REQUEST, "uvicorn.protocols.http.h11_impl", "RequestResponseCycle.send"),
    (Event.FAILED_REQUEST, "uvicorn.protocols.http.httptools_impl", "RequestResponseCycle.send"),
    (Event.FAILED_REQUEST, "aiohttp.web_protocol", "RequestHandler.finish_response"),
    (Event.FAILED_REQUEST, "werkzeug.serving", "WSGIRequestHandler.log_request"),
    (Event.FAILED_REQUEST, "wsgiref.handlers", "BaseHandler.start_response"),
    (Event.FAILED_REQUEST, "gunicorn.http.wsgi", "Response.start_response"),
    (Event.FAILED_REQUEST, "hypercorn.protocol.http_stream", "HTTPStream.app_send"),
    (Event.FAILED_REQUEST, "gunicorn.workers.base", "Worker.handle_error"),
    (
        Event.DECODE_STEP,
        "transformers.generation.utils",
        "GenerationMixin._update_model_kwargs_for_generation",
    ),
    (Event.DECODE_STEP, "vllm.v1.engine.core", "EngineCore.step"),
    (Event.TRIAL, "optuna.study._optimize", "_run_trial"),
    (Event.GRAPH_CAPTURE, "torch.cuda.graphs", "CUDAGraph.capture_begin"),
)
"""Functions of a module by the event that passes through them, those of classes by both names."""
_STATUS_AT = {"finish_response": 2, "handle_error": 0}
"""Where another argument than the first has the status of a request, or none."""


def _passages() -> Iterator[Passage]:
    for event, module, places in _TABLE:
        for place in places.split():
            owner, _, name = place.rpartition(".")
            status_at = _STATUS_AT.get(name, 1) if event is Event.FAILED_REQUEST else 0
            yield Passage(module, owner, name, event, status_at)


PASSAGES = tuple(_passages())
_OF_WSGI = ("make_environ", "get_environ")
"""What handlers of the standard library's server have that hand requests to a WSGI application:
there each passes through a function of its own."""
_WRITES = frozenset({Event.SAVE, Event.FIGURE, Event.IMAGE})
"""One inside another is a part of it: a figure is written as an image."""
_NAMES = tuple(event.value for event in Event)
_OF_GENERATIONS = tuple(
    event.value for event in (Event.COLLECTION_0, Event.COLLECTION_1, Event.COLLECTION_2)
)
_DISTRIBUTED = "_save_state_dict"
"""Writes its pieces by ``torch.save``, in threads of its own."""


class CaughtExceptions:
    """Counts the exceptions that the program's own functions catch; nothing before CPython 3.12."""

    def __init__(self, caught: Callable[[], object]) -> None:
        self._caught = caught
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool = -1
        self._codes: dict[int, tuple[weakref.ref[CodeType], frozenset[int]]] = {}
        """By where a code object lies: which it is, and where its clauses begin."""
        self._known: set[int] = set()
        self._modules: set[str] = set()
        self._imported = 0

    def install(self) -> None:
        """Take a number as a tool that no other has."""
        free = (n for n in _TOOLS if self._monitoring and self._monitoring.get_tool(n) is None)
        self._tool = next(free, -1)
        if self._tool < 0:
            return
        self._monitoring.use_tool_id(self._tool, "leakscope")
        event = self._monitoring.events.INSTRUCTION
        self._monitoring.register_callback(self._tool, event, self._instruction)

    def uninstall(self) -> None:
        """Leave the program's functions as they were found."""
        if self._tool < 0:
            return
        event = self._monitoring.events.INSTRUCTION
        for reference, _ in self._codes.values():
            if (code := reference()) is not None:
                self._monitoring.set_local_events(self._tool, code, 0)
        self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)
        self._tool = -1
        self._codes.clear()
        self._known.clear()
        self._modules.clear()

    def look(self) -> None:
        """Listen to the functions of the program that run in any thread or stand in a module."""
        if self._tool < 0:
            return
        self.follow(sys._getframe(1))
        for frame in frames_of_other_threads().values():
            self.follow(frame)
        if len(sys.modules) != self._imported and len(self._modules) < MOST_MODULES:
            self._imported = len(sys.modules)
            for name, module in list(sys.modules.items()):
                if name not in self._modules:
                    self._modules.add(name)
                    self._listen_to_module(module)

    def _listen_to_module(self, module: object) -> None:
        """Listen to what a module has defined: of a service its handlers run now and then."""
        names = vars(module) if type(module) is ModuleType else {}
        file = names.get("__file__")
        if type(file) is not str or not belongs_to_user(file):
            return
        for value in list(names.values()):
            parts = [*_ATTRIBUTES(value).values()] if issubclass(type(value), type) else [value]
            for part in parts:
                function = getattr(part, "__func__", part) if type(part) in _METHODS else part
                if type(function) is FunctionType and function.__code__.co_filename == file:
                    self._listen(function.__code__)

    def follow(self, frame: FrameType | None) -> None:
        """Listen to the program's functions that run at this moment, and to what they define."""
        while self._tool >= 0 and frame is not None:
            code = frame.f_code
            if id(code) not in self._known and belongs_to_user(code.co_filename):
                self._listen(code)
            frame = frame.f_back

    def _listen(self, code: CodeType) -> None:
        if len(self._known) >= MOST_CODES or id(code) in self._known:
            return
        self._known.add(id(code))
        clauses = clauses_of(code) if code.co_exceptiontable else frozenset()
        if clauses:
            self._codes[id(code)] = weakref.ref(code), clauses
            event = self._monitoring.events.INSTRUCTION
            self._monitoring.set_local_events(self._tool, code, event)
        for constant in code.co_consts:
            if type(constant) is CodeType:
                self._listen(constant)

    def _instruction(self, code: CodeType, offset: int) -> object:
        known = self._codes.get(id(code))
        if known is None or offset not in known[1] or known[0]() is not code:
            return self._monitoring.DISABLE
        self._caught()
        return None


def clauses_of(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions with which clauses that catch an exception begin.

    ``except Kind:`` has one behind the jump that is taken where the kind doesn't match, a bare
    ``except:`` behind the one that takes up the exception. ``with`` and ``finally`` have neither.
    """
    found, matched, taken_up = set(), False, False
    previous = ""
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if matched and name not in ("NOT_TAKEN", "CACHE"):
            found.add(instruction.offset)
            matched = False
        elif taken_up and name == "POP_TOP":
            found.add(instruction.offset)
        taken_up = name == "PUSH_EXC_INFO"
        if previous == "CHECK_EXC_MATCH" and name.startswith("POP_JUMP"):
            matched = True
        if name not in ("NOT_TAKEN", "CACHE"):
            previous = name
    return frozenset(found)


class EventCounts:
    """Counts events of this process while it is installed."""

    def __init__(self) -> None:
        self.place = 0
        """The last boundary that the program reached: saves with the same one are one event."""
        self._counts = dict.fromkeys(_NAMES, 0)
        self._reported = dict(self._counts)
        self._saved_at = -1
        self._writing: set[int] = set()
        self._distributed = 0
        self._shapes: set[int] = set()
        self._collections: list[int] = []
        self._compiled_until = 0.0
        self._compiled: list[CompilationRecord] = []
        self._described = 0
        self._frames: dict[str, tuple[str, str, int]] = {}
        self._is_reported = True
        self.caught = CaughtExceptions(functools.partial(self._add, Event.CAUGHT))
        self._patches = LatePatches([passage.module for passage in PASSAGES], self._patches_of)

    @property
    def served(self) -> int:
        """How many requests a server, or tasks a queue, has handed to the program."""
        return self._counts[Event.REQUEST.value] + self._counts[Event.TASK.value]

    def install(self) -> None:
        """Count from now on, in libraries that are imported later too."""
        self._collections = [each["collections"] for each in gc.get_stats()]
        self._look_for_compilations()
        self._compiled.clear()
        self._counts.update(dict.fromkeys(_NAMES, 0))
        self._patches.install()
        self.caught.install()

    def uninstall(self) -> None:
        """Leave the libraries as they were found; what was counted can still be read."""
        self.caught.uninstall()
        self._patches.remove()

    def forked(self) -> None:
        """The process has forked."""
        self._add(Event.PROCESS)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Count nothing meanwhile: what happens is our own doing."""
        before = dict(self._counts)
        try:
            yield
        finally:
            self._counts.update(before)

    def changed(self) -> dict[str, int]:
        """Return the counts that have changed since the last call."""
        self.caught.look()
        counts = self._counts
        for name, stats, before in zip(
            _OF_GENERATIONS, gc.get_stats(), self._collections, strict=False
        ):
            counts[name] = stats["collections"] - before
        self._look_for_compilations()
        reported = self._reported
        if counts == reported:
            return {}
        self._reported = dict(counts)
        return dict(self._reported.items() - reported.items())

    def compilations(self, boundary: int) -> list[CompilationRecord]:
        """Return what was compiled since the last call, as noticed at a boundary."""
        compiled, self._compiled = self._compiled, []
        for record in compiled:
            record.boundary = boundary
        return compiled

    def compiled_code(self, boundary: int, *, last: bool = False) -> CompiledCodeRecord | None:
        """Return what the compiler keeps; unless ``last``, None if nothing was compiled since."""
        if COMPILER not in sys.modules or (self._is_reported and not last):
            return None
        self._is_reported = True
        kept = functions()
        if not kept:
            return None
        allowed = limits()
        count, size = workers()
        return CompiledCodeRecord(
            boundary=boundary,
            functions=kept[:MOST_FUNCTIONS],
            limit=allowed.each,
            cap=allowed.together,
            is_raised=allowed.bound is None,
            is_error=allowed.is_error,
            workers=count,
            worker_bytes=size,
            ends_idle_workers=ends_idle_workers(),
            graphs=captured_graphs(),
        )

    def _patches_of(self, module: ModuleType) -> Iterator[PatchedMethod]:
        for passage in PASSAGES:
            owner = getattr(module, passage.owner, None) if passage.owner else module
            if (
                passage.module == module.__name__
                and isinstance(owner, type | ModuleType)
                and callable(vars(owner).get(passage.name))
            ):
                wrap = functools.partial(self._wrap, passage)
                yield PatchedMethod(owner, passage.name, wrap)

    def _wrap(self, passage: Passage, original: Callable[..., Any]) -> Callable[..., Any]:
        if passage.name == _DISTRIBUTED:
            return self._wrap_distributed(original)
        if passage.event in _WRITES:
            return self._wrap_write(passage.event, original)
        if passage.event is Event.NEW_SHAPE:
            return self._wrap_batch(original)
        counts, name = self._counts, passage.event.value
        is_log = passage.event is Event.LOG
        counted = self._count_logged_error if is_log else _condition(passage)

        @opaque
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if counted is None or counted(args):
                counts[name] += 1
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                del args, kwargs  # whoever clears the traceback's frames doesn't find ours
                raise

        return call

    def _wrap_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        look = self._look_at_batch

        @opaque
        @functools.wraps(original)
        def _next_data(*args: Any, **kwargs: Any) -> Any:
            try:
                batch = original(*args, **kwargs)
            except BaseException as error:
                without_our_frame(error)
                del args, kwargs  # as above
                raise
            look(batch)
            return batch

        return _next_data

    def _look_at_batch(self, batch: Any) -> None:
        try:
            if type(batch) in (list, tuple) and batch:
                batch = batch[0]
            elif type(batch) is dict and batch:
                batch = next(iter(batch.values()))
            torch: Any = sys.modules["torch"]
            if type(batch) is not torch.Tensor:
                return
            with torch._C.DisableTorchFunction():  # no mode of the program's sees it
                shape = hash(batch.shape)
        except ours(Exception):
            return  # a nested tensor has no shape
        if shape not in self._shapes and len(self._shapes) < MOST_SHAPES:
            self._shapes.add(shape)
            self._add(Event.NEW_SHAPE)

    def _count_logged_error(self, args: tuple[Any, ...]) -> bool:
        # A logger, its name, level, file, line, message, arguments, exception.
        level = args[2] if len(args) > 2 else 0
        if (type(level) is int and level >= logging.ERROR) or (len(args) > 7 and args[7]):
            self._add(Event.LOGGED_ERROR)
        return True

    def _wrap_write(self, event: Event, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> int:
            thread = get_ident()
            if thread in self._writing:
                return 0
            self._writing.add(thread)
            self._add_write(event)
            return thread

        def end(outermost: int, error: BaseException | None) -> None:
            self._writing.discard(outermost)

        return opaque(surrounded(original, begin, end))

    def _wrap_distributed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> None:
            self._add_write(Event.SAVE)
            self._distributed += 1

        def end(begun: None, error: BaseException | None) -> None:
            self._distributed -= 1

        return opaque(surrounded(original, begin, end))

    def _add(self, event: Event) -> None:
        self._counts[event.value] += 1

    def _add_write(self, event: Event) -> None:
        if event is not Event.SAVE:
            self._add(event)
        elif not self._distributed:
            self._add(Event.SAVED_FILE)
            if self._saved_at != self.place:
                self._saved_at = self.place
                self._add(Event.SAVE)

    def _look_for_compilations(self) -> None:
        """Count what the compiler has compiled; it keeps an account of the latest itself."""
        latest = getattr(sys.modules.get(COMPILER), "_compilation_metrics", None)
        if not latest or _ended(latest[-1]) <= self._compiled_until:
            return
        found = []
        for metrics in reversed(list(latest)):
            if _ended(metrics) <= self._compiled_until:
                break
            found.append(metrics)
        for metrics in reversed(found):
            self._compiled_until = max(self._compiled_until, _ended(metrics))
            if getattr(metrics, "is_forward", True) is False or getattr(
                metrics, "is_runtime", False
            ):
                continue
            record = self._placed(_described(metrics), str(getattr(metrics, "compile_id", "")))
            if not record.hit_limit:
                self._is_reported = False
                self._add(Event.RECOMPILATION if record.number else Event.COMPILATION)
            self._described += 1
            if self._described <= MOST_COMPILATIONS:
                self._compiled.append(record)

    def _placed(self, record: CompilationRecord, compile_id: str) -> CompilationRecord:
        """Return a record with its function, which only the compilations of a frame tell."""
        frame = compile_id.partition("/")[0]
        if record.file:
            if len(self._frames) < MOST_COMPILATIONS:
                self._frames[frame] = record.function, record.file, record.line
        elif frame in self._frames:
            record.function, record.file, record.line = self._frames[frame]
        return record


def _condition(passage: Passage) -> Callable[[tuple[Any, ...]], bool] | None:
    if passage.name == "parse_request":
        return _answers_itself
    place = passage.status_at
    return (lambda args: _status(args, place) >= LEAST_ERROR) if place else None


def _answers_itself(args: tuple[Any, ...]) -> bool:
    """Return whether a handler of the standard library's server hands requests to nobody else."""
    parts = [vars(cls) for cls in type(args[0]).__mro__] if args else []
    return not any(name in part for part in parts for name in _OF_WSGI)


def _status(args: tuple[Any, ...], place: int) -> int:
    status = args[place] if len(args) > place else None
    try:
        if type(status) is dict:
            status = status.get("status")
        elif not isinstance(status, int | str):
            status = getattr(status, "_status", None)  # of aiohttp: not what a property computes
        if isinstance(status, str):
            status = int(status[:3]) if status[:3].isdecimal() else 0
    except ours(Exception):
        return 0
    return int(status) if isinstance(status, int) else 0


def _ended(compiled: Any) -> float:
    """Return when a compilation ended, in microseconds; 0 where this version doesn't tell."""
    ended = getattr(compiled, "end_time_us", None)
    if isinstance(ended, int | float):
        return float(ended)
    began = getattr(compiled, "start_time", None)
    took = getattr(compiled, "entire_frame_compile_time_s", None)
    if not isinstance(began, int | float):
        return 0.0
    return 1e6 * (began + (took if isinstance(took, int | float) else 0.0))


def _caller(compiled: Any) -> tuple[str, int]:
    """Return file and line of the program that called what was compiled, where that is known.

    The account leaves out its innermost frames. Where frames of torch's end it, all are torch's;
    else the caller may be among them.
    """
    frames = getattr(compiled, "stack_trace", None)
    torch = str(Path(str(getattr(sys.modules.get("torch"), "__file__", None))).parent)
    is_exact = False
    for text in reversed(frames[:-1] if isinstance(frames, list) else []):
        found = _FRAME.fullmatch(text) if isinstance(text, str) else None
        if found is None or found[3].startswith(OUR_FILES):
            continue
        if not found[3].startswith(torch):
            return (found[3], int(found[1])) if is_exact else ("", 0)
        is_exact = True
    return "", 0


def _described(compiled: Any) -> CompilationRecord:
    frame, _, number = str(getattr(compiled, "compile_id", "")).partition("/")
    reason = str(getattr(compiled, "recompile_reason", None) or "").partition("\n")[0]
    failed = f"{getattr(compiled, 'fail_type', '')} {getattr(compiled, 'fail_reason', '')}"
    file, line = _caller(compiled)
    source = str(getattr(compiled, "co_filename", None) or "")
    try:
        return CompilationRecord(
            boundary=0,
            function=spoken_name(str(getattr(compiled, "co_name", None) or frame), source),
            file=source,
            line=int(getattr(compiled, "co_firstlineno", None) or 0),
            number=int(re.match(r"\d*", number).group() or 0),  # type: ignore[union-attr]
            reason=_COMPARED.sub(r"\1 …", reason)[:LONGEST_REASON],
            guards=int(getattr(compiled, "guard_count", None) or 0),
            caller_file=file,
            caller_line=line,
            hit_limit=_LIMIT.search(failed) is not None,
        )
    except ours(TypeError, ValueError):
        return CompilationRecord(boundary=0)


EMPTIES = {
    "torch.cuda.memory": ("_cuda_emptyCache", "torch.cuda.empty_cache()"),
    "torch.xpu.memory": ("_xpu_emptyCache", "torch.xpu.empty_cache()"),
    "torch.mps": ("_mps_emptyCache", "torch.mps.empty_cache()"),
    "torch.accelerator.memory": ("_accelerator_emptyCache", "torch.accelerator.empty_cache()"),
}
"""By the module that calls it, the function of ``torch._C`` that empties a device's cache."""
MOST_CALLERS = 32
"""Calls from further lines are left out."""
WEIGHING_SHARE = 0.05
"""Memory is read before and after a call as long as that takes no more than this part of what such
calls take."""


class CleaningCalls:
    """What the program's own calls of ``gc.collect()`` and ``empty_cache()`` take and bring, and
    how long the collector takes by itself.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        reserved: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._reserved = reserved or _Reserved().read
        self._collections = CollectionTimes()
        self._emptied: dict[tuple[str, Site], CleaningCall] = {}
        self._seconds = self._weighing_s = 0.0
        self._patches = LatePatches(EMPTIES, self._patches_of)
        self.muted, self.gauges = self._collections.muted, self._collections.gauges
        self.forget = self._collections.stop
        """Times no collections any more: this is a forked child's."""

    def install(self) -> None:
        """Look from now on."""
        self._collections.start((*NOT_USERS, *package_paths()), PACKAGES)
        self._patches.install()

    def uninstall(self) -> None:
        """Leave collector and torch as they were found; what was seen can still be read."""
        self._collections.stop()
        self._patches.remove()

    def calls(self) -> list[CleaningCall]:
        """Return all calls so far, by line."""
        return [*self._collections.calls(), *self._emptied.values()]

    def _patches_of(self, module: ModuleType) -> Iterator[PatchedMethod]:
        core = sys.modules.get("torch._C")
        name, call = EMPTIES[module.__name__]
        if core is not None and callable(vars(core).get(name)):
            yield PatchedMethod(core, name, functools.partial(self._wrap, call))

    def _wrap(self, call: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> tuple[int | None, float]:
            return self._weighed(), self._clock()

        def end(begun: tuple[int | None, float], error: BaseException | None) -> None:
            before, began = begun
            self._add(call, call_site(), self._clock() - began, before)

        return opaque(surrounded(original, begin, end))

    def _weighed(self) -> int | None:
        """Return the reserved bytes of all devices, as long as reading them is cheap enough."""
        if self._weighing_s > WEIGHING_SHARE * self._seconds:
            return None
        began = self._clock()
        reserved = self._reserved()
        self._weighing_s += self._clock() - began
        return reserved

    def _add(self, call: str, site: Site, seconds: float, before: int | None) -> None:
        self._seconds += seconds
        known = self._emptied.get((call, site))
        if known is None and len(self._emptied) >= MOST_CALLERS:
            return
        freed = 0 if before is None else max(before - self._reserved(), 0)
        known = known or CleaningCall(call=call, file=site[0], line=site[1], times=0, seconds=0.0)
        self._emptied[call, site] = msgspec.structs.replace(
            known,
            times=known.times + 1,
            seconds=known.seconds + seconds,
            longest_s=max(known.longest_s, seconds),
            weighed=known.weighed + (before is not None),
            freed_bytes=known.freed_bytes + freed,
            most_freed_bytes=max(known.most_freed_bytes, freed),
        )


class _Reserved:
    def __init__(self) -> None:
        self._probes = (CudaProbe(), AcceleratorProbe())

    def read(self) -> int:
        gauges = {name: size for probe in self._probes for name, size in probe.read().items()}
        ending = f".{gauge.DEVICE_RESERVED}"
        return sum(size for name, size in gauges.items() if name.endswith(ending))
