"""What is new and hangs outside of the user's names, weighed without a walk of the whole heap."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import functools
import gc
import sys
import tracemalloc
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leakscope.heap.census import CensusTaker
from leakscope.heap.graph import can_seal
from leakscope.model.census import Census, CensusRow, CensusScope
from leakscope.probes import native_allocations

pytestmark = pytest.mark.skipif(not can_seal(), reason="only the native walker has a baseline")
MIB = 1 << 20


class Library:
    """A module of somebody else's: the program has no name for what it gathers."""

    def __init__(self) -> None:
        self.module = types.ModuleType("somebodys_library")
        self.module.__file__ = f"{sys.prefix}/lib/somebodys_library.py"
        self.module.registry = []

    def __enter__(self) -> Library:
        sys.modules[self.module.__name__] = self.module
        return self

    def __exit__(self, *_: object) -> None:
        del sys.modules[self.module.__name__]
        vars(self.module).clear()

    def register(self, size: int) -> None:
        """Gather so many bytes in many objects, of which some may lie where known ones were."""
        parts = 256
        self.module.registry += [[bytearray(size // parts)] for _ in range(parts)]


@pytest.fixture
def taker(tmp_path):
    return CensusTaker(project_root=str(tmp_path))


def look(taker: CensusTaker) -> Census:
    return taker.take(CensusScope.FOCUSED)


def garbage(size: int) -> None:
    circle: list[object] = [bytearray(size)]
    circle.append(circle)


def test_the_first_census_only_takes_note_of_what_is_there(taker):
    census = look(taker)
    assert census.elsewhere_bytes is None
    assert census.garbage_bytes is None


def test_nothing_is_reported_where_nothing_is_new(taker):
    look(taker)
    sizes = [look(taker).elsewhere_bytes for _ in range(6)]
    assert max(sizes[1:]) - min(sizes[1:]) < 20_000


@pytest.mark.parametrize("collected", [None, 0, 1, 2])
def test_what_a_library_gathers_is_weighed(taker, collected):
    """Collections move what is new to older generations; one of all mixes them."""
    with Library() as library:
        look(taker)
        before = look(taker).elsewhere_bytes
        for count in range(1, 5):
            library.register(MIB)
            if collected is not None:
                gc.collect(collected)
            census = look(taker)
            assert census.elsewhere_bytes - before == pytest.approx(count * MIB, rel=0.15)
            assert census.garbage_bytes < MIB // 2
        assert next(iter(census.elsewhere_types)) == "bytearray"


@pytest.mark.parametrize("many", [0, 30_000])
def test_full_censuses_weigh_it_too(taker, many):
    with Library() as library:
        look(taker)
        before = look(taker).elsewhere_bytes
        for count in range(1, 5):
            library.register(MIB)
            library.module.many = [[] for _ in range(many)]
            library.module.many.clear()
            census = taker.take(CensusScope.FULL) if count % 2 else look(taker)
            assert census.elsewhere_bytes - before == pytest.approx(count * MIB, rel=0.15)


def row_of_registry(census: Census) -> CensusRow:
    return next(row for row in census.rows if row.name == "somebodys_library.registry")


def test_the_first_walk_of_all_divides_what_a_library_has_by_when_it_came(taker):
    with Library() as library:
        library.register(6 * MIB)
        gc.collect()
        look(taker)
        library.register(2 * MIB)
        row = row_of_registry(taker.take(CensusScope.FULL))
        assert row.host_bytes == pytest.approx(8 * MIB, rel=0.15)
        assert row.recent_bytes == pytest.approx(2 * MIB, rel=0.15)
        library.register(MIB)
        assert row_of_registry(taker.take(CensusScope.FULL)).recent_bytes is None


def test_nothing_divides_it_where_the_walk_of_all_comes_first(taker):
    with Library() as library:
        library.register(2 * MIB)
        assert row_of_registry(taker.take(CensusScope.FULL)).recent_bytes is None


def test_registries_that_share_their_contents_have_rows_from_the_first_walk_of_all(taker):
    with Library() as library:
        look(taker)
        for size in (2 * MIB, 3 * MIB):  # few items: the containers themselves weigh nothing
            while 40_000 * len(library.module.registry) < size:
                library.module.registry.append([bytearray(40_000)])
            library.module.by_name = {str(n): x for n, x in enumerate(library.module.registry)}
            row = row_of_registry(taker.take(CensusScope.FULL))
            reached = row.host_bytes + row.shared_bytes.get("host", 0)
            assert reached == pytest.approx(size, rel=0.15)


@pytest.mark.parametrize("is_new", [False, True], ids=["before", "since"])
def test_what_an_event_loop_has_is_weighed(taker, is_new):
    """A walk enters no event loop, for it leads to all tasks; what it has isn't ours for that."""

    def weighed() -> int | None:
        """From a thread without frames of the program's, as by time."""
        return other.submit(look, taker).result().elsewhere_bytes

    async def serve() -> list[int | None]:
        vars(asyncio.get_running_loop())["kept"] = kept = []
        weighed()
        sizes = [weighed()]
        for _ in range(2):
            for _ in range(16):
                kept.append([bytearray(MIB // 16)])
            sizes.append(weighed())
        return sizes

    with ThreadPoolExecutor(1) as other:
        if is_new:
            weighed()
        sizes = asyncio.run(serve())
    gained = [after - before for before, after in pairwise(sizes)]
    assert gained == pytest.approx([MIB, MIB], rel=0.1)


def test_what_a_library_lets_go_is_weighed_no_more(taker):
    with Library() as library:
        look(taker)
        before = look(taker).elsewhere_bytes
        library.register(MIB)
        assert look(taker).elsewhere_bytes > before + 0.85 * MIB
        library.module.registry.clear()
        assert look(taker).elsewhere_bytes < before + MIB // 10


def test_of_what_a_library_keeps_the_users_lines_are_known_where_blocks_are_sampled(
    tmp_path, monkeypatch
):
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    monkeypatch.setattr(native_allocations, "PYTHON_INTERVAL_BYTES", 64)
    source = (
        "def feed(registry):\n    for _ in range(3000):\n        registry.append(bytearray(300))\n"
    )
    program: dict[str, Any] = {}
    exec(compile(source, str(tmp_path / "train.py"), "exec"), program)
    profile = native_allocations.NativeProfile(seed=1, project_root=str(tmp_path))
    assert profile.start(), profile.why_not
    try:
        with Library() as library:
            taker = CensusTaker(project_root=str(tmp_path), blocks=profile.blocks_of)
            look(taker)
            look(taker)
            program["feed"](library.module.registry)
            sites = look(taker).elsewhere_sites
    finally:
        profile.stop()
    assert [(Path(site.file).name, site.line) for site in sites] == [("train.py", 3)]
    assert 0.5 * MIB < sites[0].bytes < 2 * MIB


def test_memory_that_a_name_and_native_code_share_is_the_names(tmp_path):
    """Arrow's buffer is named; the array and the tensor that it was made of are held by C++."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    torch = pytest.importorskip("torch")
    taker = CensusTaker(project_root=str(Path(__file__).parent))
    pyarrow.array(torch.randn(1).numpy())  # what it imports at first is there before
    kept = []
    look(taker)
    before = look(taker).elsewhere_bytes
    for _ in range(8):
        kept.append(pyarrow.array(torch.randn(MIB // 4).numpy()))
    census = look(taker)
    rows = [row for row in census.rows if row.name.endswith("kept")]
    assert rows[0].host_bytes == pytest.approx(8 * MIB, rel=0.01)
    assert census.elsewhere_bytes < before + MIB


def test_new_garbage_is_distinguished(taker):
    look(taker)
    before = look(taker)
    gc.disable()
    try:
        garbage(MIB)
        census = look(taker)
    finally:
        gc.enable()
    assert census.garbage_bytes == pytest.approx(before.garbage_bytes + MIB, rel=0.05)
    assert census.elsewhere_bytes < before.elsewhere_bytes + MIB // 10
    gc.collect()
    assert look(taker).garbage_bytes < MIB // 10


def test_what_the_users_names_reach_is_not_weighed_again(taker, tmp_path, monkeypatch):
    module = types.ModuleType("users_program")
    module.__file__ = str(tmp_path / "users_program.py")
    monkeypatch.setitem(sys.modules, "users_program", module)
    module.kept = []
    look(taker)
    before = look(taker)
    module.kept.append([bytearray(MIB)])
    census = look(taker)
    assert census.elsewhere_bytes < before.elsewhere_bytes + MIB // 10
    assert census.heap_bytes > before.heap_bytes + MIB - 1000


def test_a_module_imported_later_is_taken_in_once(taker):
    look(taker)
    before = look(taker).elsewhere_bytes
    with Library() as library:
        library.module.table = [[bytearray(1000)] for _ in range(1000)]
        imported = look(taker).elsewhere_bytes
        assert imported - before > MIB // 2
        library.register(MIB)
        assert look(taker).elsewhere_bytes - imported == pytest.approx(MIB, rel=0.15)


def test_a_tensor_kept_by_a_circle_through_autograd_is_weighed(taker):
    torch = pytest.importorskip("torch")
    look(taker)
    before = look(taker).elsewhere_bytes
    handles = []
    for _ in range(4):
        start = torch.zeros(MIB // 16, requires_grad=True)
        out = start * 2
        hook = out.register_hook(lambda gradient, kept=[out]: None)
        handles.append(hook)
        del start, out, hook
    gc.collect()
    census = look(taker)
    assert census.elsewhere_bytes - before > MIB
    assert "torch.Tensor" in census.elsewhere_types
    for handle in handles:  # the circle would stay for the tests that follow
        handle.remove()


@pytest.mark.parametrize("scope", [CensusScope.FOCUSED, CensusScope.FULL])
def test_while_allocations_are_traced_it_has_the_users_lines(taker, tmp_path, scope):
    program = "\n\ndef step():\n    register(size)\n"
    with Library() as library:
        names = {"register": library.register, "size": MIB // 4}
        exec(compile(program, str(tmp_path / "train.py"), "exec"), names)
        look(taker)
        names["step"]()
        tracemalloc.start(20)
        try:
            untraced = look(taker).elsewhere_bytes
            for _ in range(4):
                names["step"]()
            census = taker.take(scope)
        finally:
            tracemalloc.stop()
        names["step"]()
        assert not look(taker).elsewhere_sites
    first = census.elsewhere_sites[0]
    assert (first.file, first.line) == (str(tmp_path / "train.py"), 4)
    assert first.bytes >= census.elsewhere_bytes - untraced


@pytest.mark.parametrize(
    ("kind", "put"),
    [
        ("list", "registry.append(thing)"),
        ("dict", "registry[number] = thing"),
        ("deque", "registry.append(thing)"),
        ("lru_cache", "registry(number)"),
    ],
)
def test_a_librarys_container_has_the_lines_that_filled_it_last(taker, tmp_path, kind, put):
    """What its items lead to is larger, and was made elsewhere."""
    containers = {
        "list": list,
        "dict": dict,
        "deque": collections.deque,
        "lru_cache": lambda: functools.lru_cache(maxsize=None)(lambda number: [payload(), number]),
    }
    program = f"""
def payload():
    return bytearray(4096)
def step(number):
    held = payload()
    thing = [held]
    {put}
"""
    with Library() as library:
        names: dict[str, object] = {}
        library.module.registry = names["registry"] = containers[kind]()
        exec(compile(program, str(tmp_path / "train.py"), "exec"), names)
        payload = names["payload"]
        for number in range(200):
            names["step"](number)
        taker.take(CensusScope.FULL)
        tracemalloc.start(20)
        try:
            for number in range(200, 600):
                names["step"](number)
            row = row_of_registry(taker.take(CensusScope.FULL))
        finally:
            tracemalloc.stop()
        names.clear()
    assert row.allocated_at[0].file == str(tmp_path / "train.py")
    assert row.allocated_at[0].line == (7 if kind == "lru_cache" else 6)


def test_no_object_is_kept_alive(taker):
    class Thing:
        pass

    with Library() as library:
        look(taker)
        thing = Thing()
        library.module.registry.append(thing)
        look(taker)
        gone = weakref.ref(thing)
        library.module.registry.clear()
        del thing
        assert gone() is None


def test_own_memory_is_counted_and_small(taker):
    before = taker.own_bytes
    look(taker)
    tracked = len(gc.get_objects())
    assert 0 < taker.own_bytes - before < 24 * tracked + MIB


def test_heads_are_what_something_unseen_refers_to(taker):
    """Those in a library's registry, and those to which C code leaked a reference."""
    with Library() as library:
        gc.collect()  # what is young counts as new
        look(taker)
        leaked = [[bytearray(MIB // 8)] for _ in range(16)]
        for thing in leaked:
            leak_reference(thing)
        library.module.registry += [{"data": [bytearray(MIB // 8)]} for _ in range(8)]
        addresses = [id(thing) for thing in leaked]
        del leaked, thing
        census = taker.take(CensusScope.FULL)
        heads = {head.type: head for head in census.elsewhere_heads}
        native = {head.type: head for head in census.native_heads}
        for address in addresses:
            give_back(address)
    assert 16 <= heads["list"].count <= 18
    assert heads["list"].bytes == pytest.approx(2 * MIB, rel=0.05)
    assert (heads["list"].least_references, heads["list"].most_references) == (1, 1)
    assert 8 <= heads["dict"].count <= 10
    assert native["list"].count == 16
    assert "dict" not in native
    assert all(not head.type.startswith("bytearray") for head in census.elsewhere_heads)


def leak_reference(thing: object) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def give_back(address: int) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))


def test_a_list_from_the_free_list_has_the_line_of_its_items(taker, tmp_path):
    """Its header may have been allocated before tracing began: only its items are new."""
    program = "def make():\n    return [[object() for _ in range(4000)] for _ in range(20)]\n"
    names: dict[str, object] = {}
    exec(compile(program, str(tmp_path / "train.py"), "exec"), names)
    with Library() as library:
        look(taker)
        freed = [[] for _ in range(60)]
        del freed
        tracemalloc.start(20)
        try:
            library.module.registry += names["make"]()
            census = look(taker)
        finally:
            tracemalloc.stop()
        names.clear()
    assert census.elsewhere_sites[0].file == str(tmp_path / "train.py")
    assert census.elsewhere_sites[0].line == 2
