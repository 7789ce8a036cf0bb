"""Runs so short that the census at their end is the only one of their second half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import KIB, MIB, Program, Thing

from leakscope.analysis.accounting.terms import Term, judge_unnamed, unnamed_series
from leakscope.analysis.growth.search import search_growth
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.census import Site
from leakscope.model.run import Run
from leakscope.model.trend import Reason, Trend, TrendVerdict

EPOCHS = 8


def short_run(at_the_end: int, named: int = 60 * MIB) -> Run:
    """Return a run whose library gains 3 MiB an epoch, looked at in its first half and its end."""
    program = Program(epochs=EPOCHS).leak("registry", 3 * MIB, per="epoch", user=False)
    run = program.constant("main()·model", named).build()
    recorded = run.main.measurements
    half, last = len(recorded) // 2, next(m.census for m in reversed(recorded) if m.census)
    recorded[half:] = [replace(m, census=None) for m in recorded[half:]]
    final = msgspec.structs.replace(last, elsewhere_bytes=at_the_end)
    recorded[-1] = replace(recorded[-1], census=final)
    return run


@pytest.mark.parametrize(
    ("at_the_end", "named", "counts"),
    [
        (EPOCHS * 3 * MIB, 60 * MIB, True),
        (60 * MIB, 60 * MIB, False),
        (60 * MIB, KIB, True),
        (0, 60 * MIB, False),
        (0, KIB, False),
    ],
    ids=[
        "goes on",
        "jumps as functions return",
        "jumps where functions held nothing",
        "is released",
        "is released where functions held nothing",
    ],
)
def test_the_last_look_counts_where_growth_goes_on_to_it(
    at_the_end: int, named: int, counts: bool
) -> None:
    run = short_run(at_the_end, named)
    case = RunContext(run, run.main)
    _, sizes = unnamed_series(case)
    assert bool(sizes[-1] == at_the_end) is counts
    goes_on = at_the_end == EPOCHS * 3 * MIB
    assert case.trend_of(*unnamed_series(case)).is_growing is goes_on or not counts


STEPS = EPOCHS * 40


def few_looks(
    recent: float | None,
    other: float = 0.0,
    sites: Sequence[Site] = (),
    below: str = "",
    **more: int,
) -> RunContext:
    """Return a run whose library gathers 50 KiB a step, walked as a whole when it ends.

    Args:
        recent: which part of what the library has the walk tells to be new.
        other: bytes a step that come to memory besides, and no walk sees.
        sites: the user's lines that the walk tells of what is new.
        below: the library's class that holds the registry, if one does.
        more: what the walk tells of the library's row besides.

    """
    program = Program(epochs=EPOCHS, validation=0, full_at=(STEPS,))
    if below:
        size = lambda s: 20 * KIB + 50 * KIB * s.step  # noqa: E731
        program.plant(Thing(below, size, "other", "type", user=False))
        program.plant(Thing(f"{below}.entries", size, "dict", "dict", below, user=False))
    else:
        program.leak("library·registry", 50 * KIB, user=False)
    program.swell(lambda s: s.step * other)
    run = program.build()
    recorded = run.main.measurements
    whole = next(m.census for m in recorded if m.census and m.boundary.step == STEPS)
    recorded[:] = [
        m if at in (1, 60, 180) else replace(m, census=None) for at, m in enumerate(recorded)
    ]
    rows = [
        msgspec.structs.replace(
            row, recent_bytes=None if recent is None else round(recent * row.host_bytes), **more
        )
        for row in whole.rows
    ]
    recorded[-1] = replace(
        recorded[-1],
        census=msgspec.structs.replace(whole, rows=rows, whole=True, elsewhere_sites=[*sites]),
    )
    return RunContext(run, run.main)


def named_by_search(case: RunContext) -> list[str]:
    return [case.table.latest[grower.path].path for grower in search_growth(case).growers]


@pytest.mark.parametrize("recent", [1.0, 0.9])
def test_a_registry_is_named_by_one_walk_that_tells_what_of_it_is_new(recent: float) -> None:
    assert named_by_search(few_looks(recent)) == ["library·registry"]


def test_it_is_named_by_its_dict_where_its_class_grows_with_it() -> None:
    case = few_looks(0.9, below="library·Registry")
    assert named_by_search(case) == ["library·Registry.entries"]


@pytest.mark.parametrize("recent", [0.3, 0.0, None])
def test_it_is_not_where_little_of_it_is_new_or_nothing_tells(recent: float | None) -> None:
    case = few_looks(recent)
    assert judge_unnamed(case).trend.is_growing
    assert not named_by_search(case)


def test_what_is_no_large_part_of_what_memory_gains_does_not_grow_by_that() -> None:
    assert not judge_unnamed(few_looks(1.0, other=100 * KIB)).trend.is_growing


@pytest.mark.parametrize("hits", [0, 1])
def test_a_librarys_bounded_cache_is_a_leak_only_if_it_never_answers(hits: int) -> None:
    case = few_looks(1.0, capacity=2 * STEPS, hits=hits)
    found = search_growth(case)
    paths = [
        [case.table.latest[g.path].path for g in some] for some in (found.growers, found.filling)
    ]
    assert paths == [["library·registry"], []] if hits == 0 else [[], ["library·registry"]]
    unnamed = found.terms["elsewhere"]
    assert (unnamed.grows, unnamed.excluded_by) == (
        (True, "") if hits == 0 else (False, "declares_a_bound")
    )


@pytest.mark.parametrize(
    ("path", "kind", "part", "leaks"),
    [
        ("library·Model.layers", "module", 0.9, True),
        ("library·Model.layers", "module", 0.3, False),
        ("library·Model.layers", "tuple", 0.9, False),
        ("library·layers", "module", 0.9, False),
    ],
    ids=["keeps its models", "keeps results", "keyed by values", "a function's"],
)
def test_a_methods_bounded_cache_is_a_leak_where_it_alone_keeps_who_was_called(
    path: str, kind: str, part: float, leaks: bool
) -> None:
    program = Program(epochs=EPOCHS, validation=0)
    program.leak(path, 50 * KIB, user=False, kind="lru_cache", capacity=2 * STEPS)
    program.plant(
        Thing(f"{path}[*][0]", lambda s: part * 50 * KIB * s.step, kind, parent=path, user=False)
    )
    run = program.build()
    found = search_growth(RunContext(run, run.main))
    assert bool(found.growers) is leaks
    assert bool(found.filling) is not leaks


SITES = [
    Site(file="/project/train.py", line=7, bytes=6 * MIB, count=6),
    Site(file="/project/train.py", line=9, bytes=5 * MIB, count=5),
    Site(file="/project/log.py", line=3, bytes=MIB, count=900),
]
LINES = ["train.py:7", "train.py:9"]


def test_what_a_library_gathers_is_fed_at_the_lines_below_which_most_of_it_is_made() -> None:
    report = analyse(few_looks(1.0, sites=SITES).run)
    assert [(c.fed_at, c.allocated_at) for c in report.culprits] == [(LINES, [])]


def test_so_has_growth_without_a_name() -> None:
    report = analyse(few_looks(None, sites=SITES).run)
    assert [f.fed_at for f in report.findings if f.kind == "unexplained"] == [LINES]


@pytest.mark.parametrize(
    ("bound", "is_bounded"), [({"capacity": 2 * STEPS, "hits": 0}, True), ({}, False)]
)
def test_what_ends_at_a_bound_is_not_forecast_to_fill_memory(
    bound: dict[str, int], is_bounded: bool
) -> None:
    culprit = analyse(few_looks(1.0, **bound).run).culprits[0]
    assert ("It ends at 640 entries, some 31" in culprit.sentence) is is_bounded
    assert (culprit.forecast is None) is is_bounded


@pytest.mark.parametrize("is_pool_growing", [True, False])
def test_a_little_that_names_hold_is_open_where_it_is_most_of_what_memory_gains(
    is_pool_growing: bool,
) -> None:
    trend = Trend(
        verdict=TrendVerdict.INCONCLUSIVE, reason=Reason.SETTLING, bytes_per_unit=4096.0,
        interval=(0.0, 8192.0), unit="step", points=9, net_bytes=1.8 * MIB,
    )  # fmt: skip
    term = Term("named", trend, share=0.85, is_pool_growing=is_pool_growing)
    assert not term.is_much
    assert term.may_grow == is_pool_growing


@pytest.mark.parametrize(("gained", "may_grow"), [(3.0, False), (15.0, True), (17.0, False)])
def test_growth_without_a_name_is_open_where_it_is_too_little_for_a_leak_and_too_much_to_pass_over(
    gained: float, may_grow: bool
) -> None:
    """Private memory as a whole scatters; from 16 MiB on this is a leak all the same."""
    trend = Trend(
        verdict=TrendVerdict.GROWING, reason=Reason.SLOWING, bytes_per_unit=4096.0,
        interval=(2048.0, 8192.0), unit="step", points=9, net_bytes=gained * MIB,
    )  # fmt: skip
    term = Term("unexplained", trend, share=0.7, is_open_pool=True)
    assert term.may_grow == may_grow
    assert term.grows == (gained > 16)
