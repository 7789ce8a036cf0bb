"""Censuses where nobody would want to take one: among hostile objects, at awkward moments."""

from __future__ import annotations

import collections
import contextvars
import ctypes
import functools
import gc
import itertools
import mmap
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_types import BEHAVIOURS, KINDS, WATCH, Behaviour, hostile_class, hostile_object
from optional_torch import needs_torch, torch

from leakscope.heap import CensusTaker, anatomy, graph, labels
from leakscope.heap.graph import WalkRequest, walk
from leakscope.model.census import Census, CensusScope

FOCUSED, FULL = CensusScope.FOCUSED, CensusScope.FULL
needs_native = pytest.mark.skipif(
    graph.engine_name() != "native", reason="the native engine is not built"
)


def new_taker() -> CensusTaker:
    return CensusTaker(project_root=str(Path(__file__).parent), cutoff_bytes=1000, max_rows=3000)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Hostile objects of one test are gone before the next."""
    gc.collect()
    yield
    gc.collect()


class Plain:
    pass


class Slotted:
    __slots__ = ("__weakref__", "held")


CONTEXT: contextvars.ContextVar[object] = contextvars.ContextVar("hostile")
MODULE = types.ModuleType("module_of_the_test")
LOCAL = threading.local()


def suspended(held: object) -> Iterator[object]:
    yield held


def closure_over(held: object) -> Callable[[], object]:
    return lambda: held


def with_default(held: object) -> Callable[..., object]:
    def function(argument: object = held, *, option: object = held) -> object:
        return argument, option

    return function


@functools.cache
def remembered(held: object) -> object:
    return [held]


def in_all_kinds_of_places(new: Callable[[], Any]) -> list[Any]:
    """Return everything that can hold an object, each with one of its own."""
    plain, slotted, waiting = Plain(), Slotted(), queue.Queue[object]()
    plain.held, slotted.held = new(), new()  # type: ignore[attr-defined]
    waiting.put(new())
    generator = suspended(new())
    next(generator)
    CONTEXT.set(new())
    LOCAL.held, MODULE.held = new(), new()  # type: ignore[attr-defined]
    remembered(new())
    error = ValueError(new())
    error.__cause__ = KeyError(new())
    return [
        [new(), new()],
        (new(), new()),
        {new(): new()},
        {"held": new(), 1: new()},
        {new()},
        frozenset([new()]),
        collections.deque([new()], maxlen=5),
        collections.OrderedDict({new(): new()}),
        collections.defaultdict(list, {new(): [new()]}),
        collections.ChainMap({new(): new()}),
        collections.UserList([new()]),
        types.SimpleNamespace(held=new()),
        types.MappingProxyType({"held": new()}),
        types.MethodType(print, new()),
        functools.partial(print, new(), end=new()),
        weakref.WeakKeyDictionary({plain: new()}),
        weakref.WeakValueDictionary({"plain": plain}),
        type("Holder", (), {"held": new(), "__slots__": ()}),
        iter([new()]),
        map(new, [new()]),
        plain,
        slotted,
        waiting,
        generator,
        closure_over(new()),
        with_default(new()),
        error,
    ]


def look_at(taker: CensusTaker, *scopes: CensusScope) -> list[Census]:
    """Take censuses, in which no method of a hostile object may be called."""
    gc.collect()
    with WATCH.looking() as calls:
        censuses = [taker.take(scope) for scope in scopes]
    assert calls == []
    return censuses


@pytest.fixture
def everywhere() -> Iterator[Callable[..., Any]]:
    """Puts hostile objects of some kinds wherever an object can be."""
    places = []

    def fill(behaviour: Behaviour, *names: str) -> None:
        for name in names:
            places.append(in_all_kinds_of_places(lambda n=name: hostile_object(n, behaviour)))

    yield fill
    remembered.cache_clear()
    LOCAL.__dict__.clear()
    CONTEXT.set(None)
    MODULE.held = None  # type: ignore[attr-defined]


@needs_native
class TestHostileObjects:
    """Every method of theirs tells on its caller."""

    @pytest.mark.parametrize("behaviour", BEHAVIOURS.values(), ids=list(BEHAVIOURS))
    def test_no_census_calls_them(self, everywhere: Any, behaviour: Behaviour) -> None:
        everywhere(behaviour, *KINDS)
        censuses = look_at(new_taker(), FULL, FOCUSED, FULL)
        assert all(sum(row.count for row in census.rows) > 1000 for census in censuses)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", KINDS)
    def test_no_census_calls_one_of_a_kind(self, everywhere: Any, name: str) -> None:
        everywhere(BEHAVIOURS["raises"], name)
        look_at(new_taker(), FULL, FOCUSED)

    @pytest.mark.slow
    def test_the_reference_calls_nothing(
        self, everywhere: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(graph, "_native", None)
        monkeypatch.setattr(anatomy, "_read_variables", None)
        everywhere(BEHAVIOURS["raises"], *KINDS)
        look_at(new_taker(), FOCUSED, FULL)

    def test_they_are_seen_all_the_same(self) -> None:
        hostile_local = hostile_object("list", BEHAVIOURS["raises"])
        [census] = look_at(new_taker(), FOCUSED)
        row = next(row for row in census.rows if row.name.endswith(".hostile_local"))
        assert row.type.endswith(".Hostilelist")
        assert row.length == list.__len__(hostile_local) == 1

    @pytest.mark.slow
    def test_lines_that_allocate_are_looked_for_without_a_call(self) -> None:
        tracemalloc.start(4)
        try:
            taker = new_taker()
            growing = [hostile_object("array", BEHAVIOURS["raises"])]
            look_at(taker, FOCUSED)
            growing += [hostile_object(name, BEHAVIOURS["raises"]) for name in KINDS]
            [census] = look_at(taker, FOCUSED)
        finally:
            tracemalloc.stop()
        row = next(row for row in census.rows if row.name.endswith(".growing"))
        assert row.allocated_at

    def test_classes_hold_them_and_are_called_by_none(self) -> None:
        kind = hostile_class(object, BEHAVIOURS["raises"])
        type.__setattr__(kind, "held", [bytes(50_000)])
        globals()["HostileHolder"] = kind
        try:
            look_at(new_taker(), FULL)
        finally:
            del globals()["HostileHolder"]

    def test_names_that_are_hostile_texts(self) -> None:
        name = hostile_object("str", BEHAVIOURS["raises"])
        plain = Plain()
        plain.__dict__[name] = [bytes(50_000)]
        globals()[name] = plain  # type: ignore[index]
        kind = type("Named", (), {name: [bytes(50_000)]})
        try:
            look_at(new_taker(), FULL)
        finally:
            del globals()[name]  # type: ignore[arg-type]
            del kind  # held until now


CHURNED: dict[Any, Any] = {}


class Churn:
    """Threads that make, change and drop objects all the time, under names that get rows."""

    shared: list[Any] = []  # noqa: RUF012

    def __init__(self, threads: int = 2) -> None:
        self.errors: list[BaseException] = []
        self.rounds = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(i,)) for i in range(threads)]
        self._interval = sys.getswitchinterval()

    def __enter__(self) -> Churn:
        sys.setswitchinterval(1e-5)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._interval)
        CHURNED.clear()
        Churn.shared.clear()

    def _work(self, number: int) -> None:
        try:
            while not self._stop.is_set():
                self._change_everything(f"{number}.{self.rounds % 50}")
                self.rounds += 1
        except BaseException as error:
            self.errors.append(error)

    def _change_everything(self, name: str) -> None:
        plain = Plain()
        plain.heavy = [bytes(3000) for _ in range(3)]  # type: ignore[attr-defined]
        if torch is not None:
            plain.tensor = torch.zeros(1000, requires_grad=True) * 2  # type: ignore[attr-defined]
        plain.itself = plain  # type: ignore[attr-defined]
        for i in range(5):
            plain.__dict__[f"attribute_{i}_{name}"] = bytearray(2000)
        CHURNED[name] = CHURNED[name, 1] = plain
        globals()[f"CHURNED_{name.replace('.', '_')}"] = [plain]
        setattr(Churn, f"attribute_{name[-1]}", {name: plain})
        Churn.shared.append(plain)
        waiting = suspended(plain)
        next(waiting)
        plain.waiting = waiting  # type: ignore[attr-defined]
        if len(Churn.shared) > 30:
            del Churn.shared[:20]
            CHURNED.clear()
            for key in [key for key in list(globals()) if key.startswith("CHURNED_")]:
                globals().pop(key, None)
        inner = threading.Thread(target=lambda: [plain])
        inner.start()
        inner.join()


CHURNING = [
    pytest.param(FOCUSED, 30, id="focused"),
    pytest.param(FULL, 25, id="full", marks=pytest.mark.slow),
]


@needs_native
class TestAwkwardMoments:
    """The process is in the middle of something."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("scope", "times"), CHURNING)
    def test_threads_make_and_drop_objects_all_the_time(
        self, scope: CensusScope, times: int
    ) -> None:
        taker, names = new_taker(), set[str]()
        with Churn() as churn:
            for _ in range(times):
                names |= {row.name for row in taker.take(scope).rows}
        assert not churn.errors
        assert churn.rounds > 0
        assert any(name.startswith("Churn.shared") for name in names)

    def test_names_hold_while_threads_add_others(self) -> None:
        plain = Plain()
        kind = type("Kind", (), {f"name_{i}": [i] for i in range(200)})
        plain.__dict__.update({f"name_{i}": [i] for i in range(200)})
        stop = threading.Event()

        def add() -> None:
            for i in itertools.count():
                plain.__dict__.setdefault(f"other_{i % 7}", i)
                plain.__dict__.pop(f"other_{(i + 3) % 7}", None)
                type.__setattr__(kind, f"other_{i % 7}", i)
                if i % 7 == 6:
                    for k in range(7):
                        type.__delattr__(kind, f"other_{k}")
                if stop.is_set():
                    return

        adding = threading.Thread(target=add)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        adding.start()
        found = set()
        try:
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                for holder in (plain, kind):
                    part = labels.ChainPart(holder, labels.Facet.ITSELF)
                    found.add(labels.label(part, getattr(holder, "name_150")).text)  # noqa: B009
        finally:
            stop.set()
            adding.join()
            sys.setswitchinterval(interval)
        assert found == {".name_150"}

    def test_from_a_callback_of_the_collector(self) -> None:
        taker, taken = new_taker(), list[Census]()
        cycle: list[Any] = []
        cycle.append(cycle)

        def look(phase: str, info: dict[str, int]) -> None:
            taken.append(taker.take(FULL if phase == "start" else FOCUSED))

        gc.callbacks.append(look)
        try:
            del cycle
            gc.collect()
        finally:
            gc.callbacks.remove(look)
        assert [census.walker for census in taken] == ["native", "native"]  # start and stop

    def test_from_a_finalizer_and_from_a_weak_references_callback(self) -> None:
        taker, taken = new_taker(), list[Census]()

        class Ends:
            def __init__(self) -> None:
                self.itself, self.heavy = self, [bytes(50_000)]

            def __del__(self) -> None:
                taken.append(taker.take(FOCUSED))

        item = Ends()
        reference = weakref.ref(item, lambda _: taken.append(taker.take(FOCUSED)))
        del item
        gc.collect()
        assert len(taken) == 2
        assert reference() is None

    @pytest.mark.slow
    def test_from_a_signals_handler_while_another_is_being_taken(self) -> None:
        taker, other, taken = new_taker(), new_taker(), list[int]()
        taker.take(FOCUSED)
        before = signal.getsignal(signal.SIGALRM)

        def handle(*_: object) -> None:
            taken.append(len(other.take(FOCUSED).rows))
            taken.append(len(taker.take(FOCUSED).rows))

        signal.signal(signal.SIGALRM, handle)
        try:
            for microseconds in range(500, 20_000, 1500):
                signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
                assert taker.take(FOCUSED).rows
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert all(taken)
        assert taken
        assert gc.isenabled()

    @pytest.mark.slow
    def test_from_several_threads_at_once(self) -> None:
        takers = [new_taker() for _ in range(2)]
        errors, taken = list[BaseException](), list[int]()

        def work(taker: CensusTaker) -> None:
            try:
                taken.extend(len(taker.take(FOCUSED).rows) for _ in range(5))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(taker,)) for taker in takers * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(taken) == 20
        assert gc.isenabled()

    def test_while_an_exception_is_handled_and_in_a_generator(self) -> None:
        taker = new_taker()

        def generate() -> Iterator[Census]:
            try:
                raise KeyError("lost")
            except KeyError as error:
                yield taker.take(FULL)
                assert sys.exc_info()[1] is error
                yield taker.take(FULL)

        assert len(list(generate())) == 2

    def test_under_a_trace_function(self) -> None:
        taker, events = new_taker(), list[str]()

        def trace(frame: types.FrameType, event: str, _: object) -> Any:
            events.append(event)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            census = taker.take(FOCUSED)
        finally:
            sys.settrace(before)
        assert census.rows
        assert events


def nested(depth: int, kind: str) -> Any:
    inner: Any = [bytes(2000)]
    for _ in range(depth):
        if kind == "list":
            inner = [inner]
        elif kind == "dict":
            inner = {1: inner}
        elif kind == "tuple":
            inner = (inner,)
        else:
            outer = Plain()
            outer.inner = inner  # type: ignore[attr-defined]
            inner = outer
    return inner


def unnest(value: Any) -> None:
    """Take a nest apart from outside to inside: freeing it whole would nest as deep."""
    while type(value) is not bytes:
        value = getattr(value, "inner", None) or (value[1] if type(value) is dict else value[0])


def in_a_small_thread(work: Callable[[], Any]) -> Any:
    """Return what a function answers in a thread with hardly any stack."""
    found: list[Any] = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    return found[0]


MAPPED_PRIVATELY, PAGE = 0x22, 4096


def number_at(address: int) -> object:
    """Return a float that lies there, or near; it is never freed."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
    place = libc.mmap(address, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, MAPPED_PRIVATELY, -1, 0)
    made = random.random()
    ctypes.memmove(place, id(made), sys.getsizeof(made))
    ctypes.c_ssize_t.from_address(place).value = 1000
    return ctypes.cast(place, ctypes.py_object).value


@needs_native
class TestSizes:
    """Heaps that are deeper or wider than a recursive or quadratic walk would bear."""

    @pytest.mark.parametrize("kind", ["list", "dict", "tuple", "instance"])
    def test_a_deep_nest_takes_no_stack(self, kind: str) -> None:
        nest = nested(100_000, kind)
        try:
            result = in_a_small_thread(lambda: walk(WalkRequest(roots=[nest])))
            assert result.nodes.host_bytes[0] == result.heap_bytes > 100_000 * 48
        finally:
            unnest(nest)

    @pytest.mark.slow
    def test_a_million_nested_lists(self) -> None:
        nest = nested(1_000_000, "list")
        try:
            census = in_a_small_thread(lambda: new_taker().take(FULL))
            row = next(row for row in census.rows if row.name.endswith(".nest"))
            assert row.host_bytes >= 1_000_000 * 64
        finally:
            unnest(nest)

    @needs_torch
    def test_a_deep_graph_takes_no_stack(self) -> None:
        loss = torch.ones((), requires_grad=True)
        for _ in range(10_000):
            loss = loss + 1
        result = in_a_small_thread(lambda: walk(WalkRequest(roots=[loss])))
        assert result.graph_is_deep
        assert result.graph_nodes <= 10_000

    @needs_torch
    @pytest.mark.slow
    def test_a_long_running_total_can_be_dropped_after_its_first_census(self) -> None:
        program = """if True:
            import torch
            from leakscope.heap import CensusTaker
            from leakscope.model.census import CensusScope
            weight, total = torch.ones((), requires_grad=True), 0.0
            for _ in range(60_000):
                total += weight
            CensusTaker(project_root="/").take(CensusScope.FOCUSED)
            del total
        """
        done = subprocess.run([sys.executable, "-c", program], check=False)
        assert done.returncode == 0

    @pytest.mark.slow
    @pytest.mark.skipif(
        psutil.virtual_memory().available < 4 << 30, reason="the dict alone takes 1.3 GiB"
    )
    def test_a_dict_of_ten_million_entries(self) -> None:
        count = 10_000_000
        entries = {i + 10**9: float(i) for i in range(count)}
        census = new_taker().take(FULL)
        row = next(row for row in census.rows if row.name.endswith(".entries"))
        assert row.length == count
        numbers = count * (sys.getsizeof(10**9) + sys.getsizeof(1.5))
        assert row.host_bytes == sys.getsizeof(entries) + numbers

    def test_many_types(self) -> None:
        kinds = [type(f"Kind{i}", (), {}) for i in range(3000)]
        made = [kind() for kind in kinds]
        for item in made:
            item.heavy = [1.5]
        result = walk(WalkRequest(roots=[made], cutoff_bytes=0, max_selected=10))
        dicts = 0 if sys.version_info >= (3, 11) else 3000
        assert result.objects == 1 + 2 * 3000 + 1 + dicts

    @pytest.mark.skipif(sys.platform != "linux", reason="says where to map as Linux does")
    def test_objects_between_mappings_of_terabytes(self) -> None:
        apart = [number_at((1 << 44) + (i << 35)) for i in range(100)]
        result = walk(WalkRequest(roots=[apart]))
        assert len({id(item) >> 35 for item in apart}) == 100
        assert result.objects == 1 + 100

    def test_many_references_to_one_object(self) -> None:
        shared = [bytes(50_000)]
        holders = [[shared] * 100 for _ in range(10_000)]
        result = walk(WalkRequest(roots=[holders], cutoff_bytes=0, max_selected=10))
        assert result.objects == 10_003
        assert result.nodes.host_bytes[0] == result.heap_bytes


@needs_native
@pytest.mark.parametrize("length", [1, 9, 10, 11, 40])
def test_a_tuple_that_is_being_made_is_held_by_no_walk(length: int) -> None:
    """CPython resizes it at its end, and raises where anybody else refers to it."""
    kept = []

    def look() -> None:
        kept.append(walk(WalkRequest([Plain], full=True)))

    def items() -> Iterator[bytearray]:
        for number in range(length):
            if number in (0, length - 1):
                look()
            yield bytearray(4 << 20)
        look()

    assert len(tuple(items())) == length
    assert kept
