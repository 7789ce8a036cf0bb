"""A walk that goes on from a seal answers as a whole walk does."""

from __future__ import annotations

import gc
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sealed_programs import LIBRARY, STEPS, Looker, program

from leakscope.heap import CensusTaker
from leakscope.heap.graph import can_seal
from leakscope.model.census import CensusScope

pytestmark = pytest.mark.skipif(not can_seal(), reason="only the native walker seals")

PROGRAMS = Path(__file__).with_name("sealed_programs.py")


@pytest.mark.parametrize("seed", range(4))
def test_after_random_changes_both_answers_are_the_same(seed: int) -> None:
    found = subprocess.run(
        [sys.executable, str(PROGRAMS), str(seed), "12"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.stderr == ""
    assert found.stdout == ""


@pytest.mark.parametrize("seed", [1, 2])
def test_after_changes_of_what_is_folded_both_answers_are_the_same(seed: int) -> None:
    found = subprocess.run(
        [sys.executable, str(PROGRAMS), str(seed), "10", "light"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (found.stderr, found.stdout) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_after_many_random_changes_both_answers_are_the_same(seed: int) -> None:
    found = subprocess.run(
        [sys.executable, str(PROGRAMS), str(seed), "40"],
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert (found.stderr, found.stdout) == ("", "")


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_any_changes_lead_to_the_same_answer(rounds: list[list[str]]) -> None:
    run = program(0)
    looker = Looker("/nowhere")
    looker.sealed()
    try:
        for steps in rounds:
            for name in steps:
                STEPS[name](run)
            assert looker.differences() == []
    finally:
        STEPS["end_threads"](run)
        gc.unfreeze()


@pytest.fixture
def taker(tmp_path: Path) -> CensusTaker:
    return CensusTaker(project_root=str(tmp_path), cutoff_bytes=2048)


def _library_row(taker: CensusTaker, name: str) -> int:
    census = taker.take(CensusScope.FULL)
    found = [row for row in census.rows if row.path == f"{LIBRARY}·{name}"]
    return found[0].host_bytes if found else 0


def test_the_first_full_census_is_a_whole_one_and_later_ones_are_not(taker: CensusTaker) -> None:
    first, second = taker.take(CensusScope.FULL), taker.take(CensusScope.FULL)
    assert first.whole
    assert not second.whole
    assert second.sealed > first.objects / 2
    assert abs(second.heap_bytes - first.heap_bytes) < 0.01 * first.heap_bytes


def test_a_library_container_that_grows_has_a_row_each_time(taker: CensusTaker) -> None:
    run = program(1)
    taker.take(CensusScope.FULL)
    sizes = []
    for _ in range(4):
        run.module.registry.extend({"text": "x" * 5000, "n": [1]} for _ in range(40))
        sizes.append(_library_row(taker, "registry"))
    assert all(later - earlier > 40 * 5000 for earlier, later in pairwise(sizes))


def test_what_a_library_lets_go_is_no_longer_counted(taker: CensusTaker) -> None:
    run = program(2)
    run.module.registry.extend({"text": "x" * 50_000, "n": [1]} for _ in range(60))
    gc.collect()
    taker.take(CensusScope.FULL)
    before = _library_row(taker, "registry")
    del run.module.registry[:30]
    after = _library_row(taker, "registry")
    assert before - after == pytest.approx(30 * 50_000, rel=0.05)


def test_a_dict_that_the_collector_does_not_track_is_weighed_as_it_grows(
    taker: CensusTaker,
) -> None:
    run = program(3)
    taker.take(CensusScope.FULL)
    run.module.counts.update({f"key {n}": n * 1000 for n in range(5000)})
    assert _library_row(taker, "counts") > 5000 * 80


def test_nothing_is_kept_alive_by_the_seal(taker: CensusTaker) -> None:
    run = program(4)
    taker.take(CensusScope.FULL)
    taker.take(CensusScope.FULL)
    thing = run.module.thing
    references = sys.getrefcount(thing)
    taker.take(CensusScope.FULL)
    assert sys.getrefcount(thing) == references


def test_the_users_rows_do_not_depend_on_the_seal(taker: CensusTaker) -> None:
    mine = [{"text": "x" * 4000, "n": [n]} for n in range(50)]
    names = {"test_mine": mine}
    taker = CensusTaker(project_root="/nowhere", cutoff_bytes=2048, work_items=names)
    whole = {row.path: row.host_bytes for row in taker.take(CensusScope.FULL).rows if row.user}
    sealed = {row.path: row.host_bytes for row in taker.take(CensusScope.FULL).rows if row.user}
    assert whole["worker()·test_mine"] == sealed["worker()·test_mine"]


RECYCLED = """
import gc, sys, types
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope
library = types.ModuleType("a_library")
library.__file__ = "/usr/lib/a_library.py"
sys.modules["a_library"] = library
library.kept = [{i: 0.5} for i in range(5000)]
taker = CensusTaker(project_root="/nowhere")
for _ in range(3):
    taker.take(CensusScope.FULL)
assert not gc.is_tracked(library.kept[0])
places = {id(one) - 16 for one in library.kept}
library.kept.clear()
numbers = [float(i) for i in range(8)]
lists = [[*numbers[:3], dict, *numbers[:4]] for _ in range(20000)]
for _ in range(3):
    taker.take(CensusScope.FULL)
print(len(lists))
"""


def test_what_lies_where_a_dict_was_is_not_taken_for_one() -> None:
    """The items of a list are as large as a dict, and one of them may be its type."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", RECYCLED],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "20000\n", "")


def test_what_a_library_keeps_where_an_object_of_ours_lay_is_counted() -> None:
    run, looker = program(5), Looker("/nowhere")
    made: list[list[object]] = []
    looker.own.append(["ours"])
    place = id(looker.own[0])
    for _ in range(3):
        looker.sealed()
    looker.own.clear()
    made.extend([n] for n in range(100_000))
    found = [item for item in made if id(item) == place]
    made.clear()
    assert found, "the allocator gave the place to nobody"
    found[0].append("x" * 40_000)
    run.module.thing.extra = found.pop()
    assert looker.differences() == []


def test_what_is_ours_where_something_else_lay_has_one_entry() -> None:
    run, looker = program(6), Looker("/nowhere")
    run.module.registry.append(["x" * 40_000])
    for _ in range(3):
        looker.sealed()
    looker.own = [run.module.registry.pop()]  # as if it had been made in that place
    for _ in range(3):
        looker.sealed()
    run.module.thing.extra = looker.own.pop()
    assert looker.differences() == []


OURS_GROWS = """
import sys
sys.path.insert(0, sys.argv[1])
import sealed_programs
run, looker = sealed_programs.program(0), sealed_programs.Looker("/nowhere")
looker.ours, looker.named = [], {}
for _ in range(3):
    looker.sealed()
looker.ours += [[i, [i]] for i in range(300)]
looker.named["new"] = [[j] for j in range(2000)]
for _ in range(4):
    looker.sealed()
print("alive")
"""


def test_what_our_own_objects_come_to_hold_is_walked_once() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", OURS_GROWS, str(PROGRAMS.parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")
