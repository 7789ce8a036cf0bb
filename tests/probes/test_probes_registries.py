"""Entries of registries are counted in what is imported, without running anything of theirs."""

from __future__ import annotations

import logging
import queue
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import pytest

from leakscope.model import gauge
from leakscope.model.registries import REGISTRIES, CountedRegistry, Counting, registry_of
from leakscope.probes import interpreter
from leakscope.probes.interpreter import RegistriesProbe, entries_of

MODULE = "registry_of_a_test"


class Loud(dict):  # type: ignore[type-arg]
    """A container whose own length must not be called."""

    def __len__(self) -> int:
        raise AssertionError


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def registry(*places: str, **more: object) -> CountedRegistry:
    return CountedRegistry("test", "entries", places, **more)  # type: ignore[arg-type]


def test_names_are_distinguished_and_name_no_device() -> None:
    names = [each.name for each in REGISTRIES]
    assert len(set(names)) == len(names)
    for name in names:
        assert "." not in gauge.registry(name)
        unit, meaning = gauge.describe(gauge.registry(name))
        assert (unit, bool(meaning)) == ("count", True)


def test_nothing_is_imported_or_computed(module: types.ModuleType) -> None:
    def refuse(name: str) -> object:
        raise AssertionError(name)

    module.__getattr__ = refuse  # type: ignore[method-assign]
    before = set(sys.modules)
    assert entries_of(registry(f"{MODULE}:lazy", "no_such_module:entries")) is None
    assert set(sys.modules) == before


def test_a_containers_own_length_is_not_called(module: types.ModuleType) -> None:
    module.entries = Loud(a=1, b=2)  # type: ignore[attr-defined]
    assert entries_of(registry(f"{MODULE}:entries")) == 2


def test_properties_are_not_run(module: types.ModuleType) -> None:
    class Holder:
        @property
        def entries(self) -> list[int]:
            raise AssertionError

    module.holder = Holder()  # type: ignore[attr-defined]
    assert entries_of(registry(f"{MODULE}:holder.entries")) is None


def test_functions_of_the_program_are_not_called(module: types.ModuleType) -> None:
    module.count = lambda: 1 / 0  # type: ignore[attr-defined]
    assert entries_of(registry(f"{MODULE}:count", counting=Counting.CALL)) is None


def test_places_are_added_up_and_others_left_out(module: types.ModuleType) -> None:
    module.some = [1, 2, 3]  # type: ignore[attr-defined]
    module.more = weakref.WeakValueDictionary()  # type: ignore[attr-defined]
    module.but = {1}  # type: ignore[attr-defined]
    both = (f"{MODULE}:some", f"{MODULE}:more")
    assert entries_of(registry(*both)) == 3
    assert entries_of(registry(*both, but=(f"{MODULE}:but",))) == 2


def test_only_what_changes_is_read_out_again() -> None:
    probe, handlers = RegistriesProbe(), gauge.registry("log-handlers")
    first = probe.gauges()
    assert handlers in first
    assert handlers not in probe.gauges()
    handler = logging.NullHandler()
    filled = probe.gauges()
    assert filled[handlers] == first[handlers] + 1
    del handler
    assert probe.gauges()[handlers] == first[handlers]


class Writer(threading.Thread):
    """A thread of a library, with what it is to write in a queue of its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.records: queue.Queue[int] = queue.Queue()
        self.urgent: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ended = threading.Event()

    def run(self) -> None:
        self.ended.wait()


class Logger:
    """The same by a method that a thread runs."""

    def __init__(self) -> None:
        self.records: queue.Queue[int] = queue.Queue()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.write, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def write(self) -> None:
        self.ended.wait()

    def join(self) -> None:
        self.thread.join()


@pytest.mark.parametrize("kind", [Writer, Logger])
def test_what_waits_for_a_thread_of_a_library_is_counted(
    kind: type, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = registry(MODULE, counting=Counting.SERVED)
    mine, others = kind(), kind()
    monkeypatch.setattr(kind, "__module__", f"{MODULE}.inner")
    assert entries_of(served) == 0
    for number in range(3):
        mine.records.put(number)
    mine.start()
    assert entries_of(served) == 3
    others.records.put(0)
    others.start()
    assert entries_of(served) == 4
    for each in (mine, others):
        each.ended.set()
        each.join()
    assert entries_of(served) == 0


def test_queues_of_other_modules_and_of_what_is_not_imported_do_not_count(
    module: types.ModuleType,
) -> None:
    writer = Writer()
    writer.records.put(1)
    writer.start()
    assert entries_of(registry(MODULE, counting=Counting.SERVED)) == 0
    assert entries_of(registry("no_such_module", counting=Counting.SERVED)) is None
    writer.ended.set()
    writer.join()


def named(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, *batches: object) -> list[str]:
    """Return what is told of a registry at first empty, then filled."""
    table = (registry(f"{MODULE}:entries"),)
    monkeypatch.setattr(interpreter, "REGISTRIES", table)
    probe = RegistriesProbe()
    for batch in batches:
        module.entries = batch  # type: ignore[attr-defined]
        probe.gauges()
    return probe.latest().get("test", [])


def save(_: object) -> None:
    pass


class Quiet:
    """An object none of whose own code may run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(name)

    def __repr__(self) -> str:
        raise AssertionError


SAVE = f"save ({Path(__file__).name}:{save.__code__.co_firstlineno})"


@pytest.mark.parametrize(
    ("empty", "filled", "names"),
    [
        pytest.param(
            {}, {f"run.{n}": n for n in range(9)}, ["run.8", "run.7", "run.6"], id="texts"
        ),
        pytest.param([], [*range(8), save], [SAVE], id="a function"),
        pytest.param([], [*range(8), partial(save, 1)], [SAVE], id="a partial one"),
        pytest.param({}, dict.fromkeys(range(9), Quiet), [f"{__name__}.Quiet"], id="classes"),
        pytest.param([], [weakref.ref(Quiet)] * 9, [f"{__name__}.Quiet"], id="weak references"),
        pytest.param([], [Quiet("h")] * 9, [f"{__name__}.Quiet h"], id="what has a name"),
        pytest.param(
            [], [("ignore", re.compile("old"), Warning)] * 9, ["ignore old Warning"], id="tuples"
        ),
        pytest.param([], list(range(9)), [], id="what tells nothing"),
        pytest.param([], [save] * 7, [], id="a few"),
    ],
)
def test_the_latest_entries_are_named(
    empty: object,
    filled: object,
    names: list[str],
    module: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert named(monkeypatch, module, empty, filled) == names


def test_what_lay_there_from_the_beginning_is_not_named(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {f"old{n}": n for n in range(50)}
    assert named(monkeypatch, module, full, {**full, "one": 1}) == []


def test_finalizers_are_named_by_the_functions_they_have() -> None:
    probe, owner = RegistriesProbe(), Writer()
    probe.gauges()
    kept = [weakref.finalize(owner, save, number) for number in range(9)]
    probe.gauges()
    assert probe.latest()["finalizers"] == [SAVE]
    for each in kept:
        each.detach()


def test_what_lies_at_two_places_counts_once(module: types.ModuleType) -> None:
    module.entries = module.alias = [1, 2, 3]  # type: ignore[attr-defined]
    module.others = {4}  # type: ignore[attr-defined]
    places = (f"{MODULE}:entries", f"{MODULE}:alias", f"{MODULE}:others")
    assert entries_of(registry(*places)) == 4


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("re·_cache", "patterns"),
        ("encodings·_cache[*]", "encodings"),
        ("torch.library·_defs", "operators"),
        ("logging·Logger.manager.loggerDict", "loggers"),
        ("logging·Logger.manager", "loggers"),
        ("logging·Logger.manager.loggerDictionary", None),
        ("other·_cache", None),
        ("sys·modules_of_mine", None),
    ],
)
def test_a_path_leads_to_a_registry(path: str, name: str | None) -> None:
    found = registry_of(path)
    assert (found.name if found else None) == name


@pytest.fixture
def many_libraries() -> Iterator[None]:
    pytest.importorskip("torch")
    pytest.importorskip("torch._dynamo")
    yield


@pytest.mark.usefixtures("many_libraries")
def test_counting_all_takes_less_than_a_millisecond() -> None:
    probe = RegistriesProbe()
    probe.gauges()
    seconds = []
    for _ in range(50):
        began = perf_counter()
        probe.gauges()
        seconds.append(perf_counter() - began)
    assert min(seconds) < 0.001
