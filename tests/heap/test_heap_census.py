from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from heap_programs import RunProgram

from leakscope.heap import CensusTaker
from leakscope.heap import census as census_module
from leakscope.model import census as packages
from leakscope.model.census import CensusScope, RootKind
from leakscope.probes import native_allocations

FOCUSED, FULL = CensusScope.FOCUSED, CensusScope.FULL


def test_a_librarys_buffer_is_reported_once_it_grows(run_program: RunProgram) -> None:
    taken = run_program(
        """
import logging, logging.handlers
def configure():
    memory = logging.handlers.MemoryHandler(capacity=10**9, flushLevel=logging.CRITICAL)
    logging.getLogger("metrics_of_the_test").addHandler(memory)
    logging.getLogger("metrics_of_the_test").propagate = False
configure()
look()
def emit():
    for i in range(6):
        logging.getLogger("metrics_of_the_test").warning("x" * 20_000 + str(i))
emit()
look()
""",
        scope=FULL,
    )
    grown = [row for row in taken.last.rows if row.name.endswith(".buffer")]
    assert len(grown) == 1
    assert grown[0].root is RootKind.LIBRARY
    assert not grown[0].user
    assert grown[0].name.startswith("logging")
    assert grown[0].length == 6
    assert grown[0].host_bytes >= 6 * 20_000


def test_a_focused_census_sees_what_functions_gather_that_the_user_calls(
    run_program: RunProgram, tmp_path_factory: pytest.TempPathFactory, monkeypatch
) -> None:
    library = tmp_path_factory.mktemp("library")
    source = """
def evaluate(predict):
    gathered = []
    unused = "x" * 10
    for batch in range(3):
        gathered.append(bytearray(100_000))
        predict(batch)
    return gathered
"""
    (library / "trainers_of_the_test.py").write_text(source)
    monkeypatch.syspath_prepend(library)
    taken = run_program(
        """
import trainers_of_the_test
look()
def predict(batch):
    look()
trainers_of_the_test.evaluate(predict)
""",
    )
    rows = [taken.row("trainers_of_the_test.evaluate.gathered", at) for at in (2, 3)]
    assert [row.length for row in rows] == [2, 3]
    assert [row.host_bytes // 100_000 for row in rows] == [2, 3]
    assert {(row.root, row.user) for row in rows} == {(RootKind.LIBRARY, False)}


def test_of_libraries_only_the_large_is_reported(run_program: RunProgram) -> None:
    census = run_program("look()", scope=FULL).last
    assert len([row for row in census.rows if not row.user]) < 60


def test_the_user_comes_before_libraries(run_program: RunProgram) -> None:
    taken = run_program("cache = [bytes(30_000) for _ in range(4)]\nlook()", scope=FULL)
    assert taken.last.rows[0].user


def test_uncollected_cycles_are_garbage_and_no_culprit(run_program: RunProgram) -> None:
    taken = run_program(
        """
import gc
gc.collect()
gc.disable()
def cycle():
    ring = [bytes(2_000_000)]
    ring.append(ring)
cycle()
look()
gc.enable()
""",
        scope=FULL,
    )
    garbage = taken.last.garbage_bytes
    assert garbage is not None
    assert garbage >= 2_000_000
    assert not [row for row in taken.last.rows if row.user]


def test_growing_containers_are_reported_before_larger_static_ones(run_program: RunProgram) -> None:
    taken = run_program(
        """
static = {word: [bytes(90_000)] for word in ("a", "b", "c", "d", "e", "f", "g", "h")}
grows = [bytes(20_000)]
look()
grows.append(bytes(20_000))
look()
""",
        max_rows=3,
    )
    assert "grows" not in taken.names(0)
    assert "grows" in taken.names(1)


def test_rows_once_reported_stay_reported(run_program: RunProgram) -> None:
    taken = run_program(
        """
first = [bytes(40_000)]
look()
second = [bytes(90_000)]
third = [bytes(90_000)]
look()
""",
        max_rows=2,
    )
    assert {"first", "first[*]"} == taken.names(0) == taken.names(1)


def test_a_librarys_registry_has_a_row_next_to_many_of_the_users(run_program: RunProgram) -> None:
    taken = run_program(
        """
import logging
for number in range(8):
    globals()[f"data_{'abcdefgh'[number]}"] = [bytes(90_000)]
logging.registry = [bytes(30_000) for _ in range(50)]
look()
""",
        max_rows=4,
        scope=FULL,
    )
    rows = taken.last.rows
    assert [row.user for row in rows] == [True] * 4 + [False]


def test_rows_name_their_owner_and_its_line(run_program: RunProgram, tmp_path: Path) -> None:
    taken = run_program(
        """\
        class Trainer:
            limit = 3

            def __init__(self):
                self.history = [bytes(30_000) for _ in range(3)]

        def make_log():
            records = [bytes(30_000) for _ in range(3)]
            def log():
                return records
            return log

        def main():
            trainer = Trainer()
            preds = [bytes(30_000) for _ in range(3)]
            look()

        log = make_log()
        main()
        """
    )
    script = str(tmp_path / "train.py")
    owners = {name: taken.row(name).owner for name in ("Trainer.history", "make_log.records")}
    owners["main.preds"] = taken.row("main.preds").owner
    found = {n: (o.kind, o.name, o.line, o.variable) for n, o in owners.items() if o}
    assert found == {
        "Trainer.history": ("class", "Trainer", 1, "history"),
        "make_log.records": ("function", "make_log", 7, "records"),
        "main.preds": ("function", "main", 13, "preds"),
    }
    assert {owner.file for owner in owners.values() if owner} == {script}
    assert taken.taker.source_files() == {script}


def test_a_census_keeps_nothing_alive(run_program: RunProgram) -> None:
    class Payload:
        def __init__(self) -> None:
            self.data = bytes(30_000)

    taker = CensusTaker(project_root=str(Path(__file__).parent))
    held = [Payload() for _ in range(3)]
    census = taker.take(FOCUSED)
    assert any(row.name.endswith(".held") for row in census.rows)
    watched = [weakref.ref(payload) for payload in held]
    counts = [sys.getrefcount(payload) for payload in held]
    taker.take(FOCUSED)
    assert [sys.getrefcount(payload) for payload in held] == counts
    del held
    assert [ref() for ref in watched] == [None] * 3


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        taker.take(FOCUSED)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_no_code_of_the_users_runs(run_program: RunProgram) -> None:
    taken = run_program(
        """
ran = []
def fail(*args, **kwargs):
    ran.append(args)
    raise RuntimeError("code of the user's ran")
class Meta(type):
    __instancecheck__ = __subclasscheck__ = __eq__ = fail
    __hash__ = type.__hash__
class Touchy(metaclass=Meta):
    def __init__(self):
        object.__setattr__(self, "data", [bytes(30_000) for _ in range(3)])
    __getattribute__ = __getattr__ = __len__ = __iter__ = __eq__ = __repr__ = fail
    __hash__ = __bool__ = __sizeof__ = __class_getitem__ = __reduce_ex__ = fail
    @property
    def __class__(self):
        fail()
class TouchyDict(dict):
    __getitem__ = __iter__ = __len__ = items = values = keys = get = __contains__ = fail
class TouchyList(list):
    __getitem__ = __iter__ = __len__ = __contains__ = fail
def main():
    touchy = Touchy()
    mapping = TouchyDict(a=bytes(30_000))
    items = TouchyList([bytes(30_000)])
    look()
main()
assert not ran, ran
"""
    )
    assert {"Touchy.data", "main.mapping['a']", "main.items[*]"} <= taken.names()


@pytest.mark.slow
def test_the_taker_stays_small_over_many_censuses() -> None:
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    held: dict[str, list[bytes]] = {}
    sizes = []
    for i in range(500):
        held[f"{chr(97 + i % 26)}{chr(97 + i // 26)}"] = [bytes(20_000)]
        if len(held) > 20:
            del held[next(iter(held))]
        taker.take(FOCUSED)
        sizes.append(taker.own_bytes)
    known = 24 * len(gc.get_objects())  # where what was there at first lies
    assert max(sizes) < 1_000_000 + known
    assert sizes[-1] <= 1.3 * sizes[300]


def test_leakscope_itself_is_no_row(run_program: RunProgram) -> None:
    census = run_program("look()", scope=FULL).last
    assert not [row.path for row in census.rows if "leakscope" in row.path]


@pytest.mark.parametrize("kind", ["torch.zeros(5000)", "bytearray(20_000)"])
def test_the_lines_that_allocate_are_found(kind: str, run_program: RunProgram) -> None:
    pytest.importorskip("torch")  # before tracing: importing it traced takes a minute
    tracemalloc.start(8)
    try:
        taken = run_program(
            f"""
import torch
kept = []
def make():
    return {kind}
for _ in range(3):
    kept.append(make())
look()
for _ in range(3):
    kept.append(make())
look()
"""
        )
    finally:
        tracemalloc.stop()
    assert taken.row("kept", census=0).allocated_at == []
    sites = taken.row("kept").allocated_at
    assert [(Path(site.file).name, site.line) for site in sites] == [("train.py", 5)]
    assert sites[0].bytes == pytest.approx(6 * 20_000, rel=0.05)


LinesKnown = Callable[[], AbstractContextManager[dict[str, Any]]]


@pytest.fixture(params=["traced", "sampled"])
def lines_known(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LinesKnown:
    """Both ways to know which lines allocate: with options for the taker of censuses."""

    @contextmanager
    def traced() -> Iterator[dict[str, Any]]:
        tracemalloc.start(8)
        try:
            yield {}
        finally:
            tracemalloc.stop()

    @contextmanager
    def sampled() -> Iterator[dict[str, Any]]:
        pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
        monkeypatch.setattr(native_allocations, "PYTHON_INTERVAL_BYTES", 16)
        profile = native_allocations.NativeProfile(seed=1, project_root=str(tmp_path))
        assert profile.start(), profile.why_not
        try:
            yield {"blocks": profile.blocks_of}
        finally:
            profile.stop()

    return traced if request.param == "traced" else sampled


@pytest.mark.parametrize(
    ("container", "insertion"),
    [
        ("[]", "kept.append(item)"),
        ("{}", "kept[len(kept)] = item"),
        ("set()", "kept.add(item)"),
        ("collections.deque()", "kept.append(item)"),
        ("collections.OrderedDict()", "kept[len(kept)] = item"),
        ("Holder()", "kept.items.append(item)"),
    ],
)
def test_the_line_at_which_a_container_makes_room_is_found(
    container: str, insertion: str, lines_known: LinesKnown, run_program: RunProgram
) -> None:
    with lines_known() as options:
        taken = run_program(
            f"""
import collections
class Holder:
    def __init__(self):
        self.items, self.fixed = [], 1
kept = {container}
def put(item):
    {insertion}
for number in range(2):
    put(str(number) * 20_000)
look()
for number in range(400):  # fewer than the sampler may draw at once, however busy the machine is
    item = str(number) * 500
    put(item)
look()
""",
            **options,
        )
    row = taken.row("kept")
    assert [(Path(site.file).name, site.line) for site in row.inserted_at] == [("train.py", 8)]
    if container != "set()":  # which keeps no order
        assert [site.line for site in row.items_made_at] == [13]


def test_no_folder_is_listed_while_the_process_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lists one lets go of the interpreter's lock at each entry, and waits for it again."""
    done: list[str] = []
    listed, rests = packages._first_parts, census_module.at_rest

    def first_parts(folder: str) -> Iterator[str]:
        done.append("list")
        return listed(folder)

    def at_rest(take: Callable[[], Any], patience: float) -> tuple[Any, bool]:
        done.append("stand still")
        return rests(take, patience)

    monkeypatch.setattr(packages, "_first_parts", first_parts)
    monkeypatch.setattr(census_module, "at_rest", at_rest)
    taker = CensusTaker(project_root=str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path / "come later")
    taker.take(FOCUSED)
    assert done[-1] == "stand still"
    assert "list" in done[:-1]


def test_items_made_by_one_line_and_data_by_another_have_both(
    run_program: RunProgram, tmp_path: Path
) -> None:
    """A tensor is a small object of Python's and memory of torch's."""
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    profile = native_allocations.NativeProfile(seed=1, project_root=str(tmp_path))
    assert profile.start(), profile.why_not
    try:
        taken = run_program(
            """
import torch
kept = []
def forward():
    return torch.ones(1 << 20)
for census in range(2):
    for number in range(8):
        out = forward()
        kept.append(out.detach())
    look()
""",
            blocks=profile.blocks_of,
        )
    finally:
        profile.stop()
    sites = taken.row("kept").allocated_at
    assert [(Path(site.file).name, site.line) for site in sites[:1]] == [("train.py", 5)]
    assert sites[0].bytes >= 7 * (4 << 20)


def test_what_registered_functions_close_over_has_its_line(
    run_program: RunProgram, tmp_path: Path
) -> None:
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    pytest.importorskip("torch")
    profile = native_allocations.NativeProfile(seed=1, project_root=str(tmp_path))
    assert profile.start(), profile.why_not
    try:
        taken = run_program(
            """
import torch
kept = {}
def scaler(factors):
    def scale(x):
        return {"by": [factors]}
    return scale
for census in range(2):
    for number in range(8):
        factors = [[torch.ones(1 << 20)]]
        kept[census, number] = scaler(factors)
    del factors
    look()
""",
            blocks=profile.blocks_of,
        )
    finally:
        profile.stop()
    sites = taken.row("kept").allocated_at
    assert [(Path(site.file).name, site.line) for site in sites[:1]] == [("train.py", 10)]


def test_without_tracemalloc_nothing_is_reported_about_lines(run_program: RunProgram) -> None:
    taken = run_program("kept = [bytes(30_000)]\nlook()\nkept.append(bytes(30_000))\nlook()")
    row = taken.row("kept")
    assert (row.allocated_at, row.inserted_at, row.items_made_at) == ([], [], [])


def test_what_only_native_code_holds_is_named_by_type(run_program: RunProgram) -> None:
    pytest.importorskip("leakscope.heap._native")
    taken = run_program(
        """
import ctypes
def hold():
    value = [bytes(3_000_000)]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return id(value)
address = hold()
look()
ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))
""",
        scope=FULL,
    )
    rows = [row for row in taken.last.rows if row.root is RootKind.NATIVE]
    assert any(row.name.endswith("list") and row.host_bytes >= 3_000_000 for row in rows)


def test_the_texts_of_warnings_have_a_name_and_other_plumbing_has_none() -> None:
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    globals()["__warningregistry__"] = {f"{i:0500}": True for i in range(1000)}
    globals()["__plumbing__"] = [f"{i:0500}" for i in range(1000)]
    try:
        rows = taker.take(CensusScope.FOCUSED).rows
    finally:
        del globals()["__warningregistry__"], globals()["__plumbing__"]
    (row,) = (row for row in rows if row.path.endswith("·__warningregistry__"))
    assert row.user
    assert row.host_bytes > 500_000
    assert not [row for row in rows if row.path.endswith("__plumbing__")]
