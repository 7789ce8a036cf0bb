"""The first line of a report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from synthetic_runs import MIB, Program

from leakscope.analysis import analyse
from leakscope.analysis.accounting.terms import Term
from leakscope.analysis.growth.search import search_growth
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.culprits import until_their_bounds
from leakscope.analysis.verdict.headline import headline, verdict_of
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import EndRecord, HeaderRecord, RunManifest
from leakscope.model.report import Culprit, Finding, Remedy, Report, RunVerdict, Severity, Work
from leakscope.model.run import Measurement, Recording, Run

WORK = Work(epochs=3, steps=30, validations=3, duration_s=9.0)
REMEDY = Remedy(title="", text="")


def culprit(name: str, severity: Severity = Severity.WARNING) -> Culprit:
    return Culprit(
        rank=1,
        name=name,
        path=name,
        kind="list",
        type="list",
        growth="across",
        unit="step",
        phase="train",
        bytes_per_unit=2048.0,
        interval=(2000.0, 2100.0),
        share=0.9,
        total_bytes=100_000,
        severity=severity,
        readings=9,
        fed_at=["train.py:7"],
        signature=name,
        remedy=REMEDY,
    )


def finding(title: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        rank=1, kind="k", title=title, text="All.", severity=severity, signature="", remedy=REMEDY
    )


@pytest.mark.parametrize(
    ("culprits", "findings", "text"),
    [
        (["A.xs"], [], "Memory leaks: A.xs grows by 2 KiB per step (train.py:7)."),
        (
            ["A.xs", "B.ys", "C.zs"],
            [],
            (
                "Memory leaks: A.xs grows by 2 KiB per step (train.py:7). "
                "The same line feeds 2 more: 6 KiB per step in all."
            ),
        ),
        (
            ["A.xs"],
            ["More and more open figures"],
            (
                "Memory leaks: A.xs grows by 2 KiB per step (train.py:7). "
                "Also: more and more open figures."
            ),
        ),
        ([], ["Open files"], "Memory grows: open files. All."),
        ([], ["Memory grows outside all names"], "Memory grows outside all names. All."),
    ],
)
def test_of_a_leak_it_names_all_that_matters(
    culprits: list[str], findings: list[str], text: str
) -> None:
    found = [*map(culprit, culprits), culprit("small", Severity.NOTE)]
    diagnosed = [*map(finding, findings), finding("Slack", Severity.NOTE)]
    assert headline(RunVerdict.LEAK, found, diagnosed, [], WORK) == text


@pytest.mark.parametrize(
    ("kind", "title", "text"),
    [
        (
            "unexplained",
            "Native memory grows in libz.so.1",
            "Native memory grows by 2 KiB per step in ",
        ),
        (
            "leaked_references",
            "Arrays are never freed",
            "Memory grows by 2 KiB per step: arrays are ",
        ),
        ("open_files", "More files are open", "Memory grows: more files are open."),
    ],
)
def test_of_growth_without_a_name_the_rate_comes_first(kind: str, title: str, text: str) -> None:
    found = msgspec.structs.replace(finding(title), kind=kind, bytes_per_unit=2048.0, unit="step")
    assert headline(RunVerdict.LEAK, [], [found], [], WORK).startswith(text)
    repeated = msgspec.structs.replace(found, text="It grows by 2 KiB per step.")
    assert headline(RunVerdict.LEAK, [], [repeated], [], WORK).count("2 KiB") == 1


def test_culprits_that_other_lines_feed_are_counted_apart() -> None:
    found = [*map(culprit, ["A.xs", "B.ys", "C.zs", "D.vs"])]
    found[2:] = [msgspec.structs.replace(each, fed_at=["train.py:9"]) for each in found[2:]]
    assert headline(RunVerdict.LEAK, found, [], [], WORK) == (
        "Memory leaks: A.xs grows by 2 KiB per step (train.py:7). The same line feeds 1 more: "
        "4 KiB per step in all. 2 more culprits below."
    )


@pytest.mark.parametrize(("share", "leads"), [(0.97, True), (0.6, False), (0.4, False)])
def test_a_finding_of_nearly_all_growth_comes_before_a_small_container(
    share: float, leads: bool
) -> None:
    small = msgspec.structs.replace(culprit("quotes"), share=0.07 if share < 0.9 else 0.02)
    large = msgspec.structs.replace(finding("Objects are never freed"), share=share)
    text = headline(RunVerdict.LEAK, [small], [large], [], WORK)
    expected = "Memory grows: objects are never freed. All. 1 smaller culprit below."
    assert (text == expected) is leads
    assert leads or text.startswith("Memory leaks: quotes")


def untrained(end: EndRecord | None, **outcome: str | int) -> Report:
    run = Run(
        Path("run"),
        RunManifest(),
        [
            Recording(
                HeaderRecord(role="main"),
                measurements=[
                    Measurement(Boundary(index=0, kind=BoundaryKind.RUN_BEGIN, time_s=0.0), {})
                ],
                end=end,
            )
        ],
    )
    run.outcome = dict(outcome)
    return analyse(run)


@pytest.mark.parametrize(
    ("end", "outcome", "words"),
    [
        (
            EndRecord(status="exception", exception="SyntaxError: invalid syntax (a.py, line 1)"),
            {},
            "before the program ended by SyntaxError: invalid syntax (a.py, line 1).",
        ),
        (EndRecord(status="exit", exit_code=3), {}, "before the program ended with exit code 3."),
        (EndRecord(status="interrupted"), {}, "before the program was interrupted."),
        (None, {"signal": 9, "exit_code": 137}, "before the run was killed by SIGKILL."),
    ],
)
def test_a_program_that_never_trained_is_reported_by_its_end(
    end: EndRecord | None, outcome: dict[str, str | int], words: str
) -> None:
    report = untrained(end, **outcome)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing == [
        f"Nothing of its work was seen {words}",
        "A run that gets to its work.",
    ]
    assert report.headline.endswith(report.missing[0])


def test_a_program_without_a_loop_gets_a_list_of_what_would_be_seen() -> None:
    seen, settles = untrained(EndRecord(status="completed")).missing
    assert "no optimizer made a step" in seen
    assert "by time alone it takes 20 s" in seen
    assert "leakscope.profile()" in settles


def spent(kind: str, size: int) -> Finding:
    return Finding(
        rank=1,
        kind=kind,
        title="Workers copy rows by looking at it",
        text="",
        total_bytes=size,
        severity=Severity.NOTE,
        signature=kind,
        remedy=REMEDY,
    )


@pytest.mark.parametrize(
    ("verdict", "missing", "before", "neighbour"),
    [
        (
            RunVerdict.CLEAN,
            [],
            "No leak found in 3 epochs, 30 steps and 3 validations.",
            "No leak, but large",
        ),
        (
            RunVerdict.INCONCLUSIVE,
            ["Profile longer."],
            "Inconclusive after 3 epochs, 30 steps and 3 validations. Profile longer.",
            "Large as well",
        ),
    ],
)
def test_what_takes_much_memory_without_a_leak_stands_in_the_first_line(
    verdict: RunVerdict, missing: list[str], before: str, neighbour: str
) -> None:
    copied = [spent("copy_on_write", 228 << 20)]
    text = headline(verdict, [], copied, missing, WORK)
    assert text == f"{before} {neighbour}: workers copy rows by looking at it (228 MiB)."
    assert headline(verdict, [], [spent("copy_on_write", 1 << 20)], missing, WORK) == before
    assert headline(verdict, [], [spent("native_held", 228 << 20)], missing, WORK) == before


def test_what_the_source_bounds_is_no_leak_before_it_is_full() -> None:
    run = Program(epochs=6).leak("pool.images", MIB).leak("log.lines", MIB / 2).build()
    pool, log = analyse(run).culprits
    bounded = msgspec.structs.replace(
        pool, remedy=msgspec.structs.replace(pool.remedy, bound="self.size at pool.py:12")
    )
    case = RunContext(run, run.main)
    found, filling = until_their_bounds(case, [bounded, log])
    assert [(c.name, c.severity, c.rank) for c in found] == [
        ("log.lines", Severity.WARNING, 1),
        ("pool.images", Severity.NOTE, 2),
    ]
    growth = search_growth(case)
    alone = verdict_of(case, growth, found[1:], [], [], filling)
    assert alone[0] is RunVerdict.INCONCLUSIVE
    assert "towards its bound, self.size at pool.py:12, and may not have" in alone[1][0]
    assert verdict_of(case, growth, found, [], [], filling) == (RunVerdict.LEAK, [])


def test_a_run_in_which_many_names_grow_together_is_not_clean() -> None:
    """None of them has a culprit, for each was undecided by itself."""
    run = Program(epochs=6).leak("pool.images", MIB).build()
    case = RunContext(run, run.main)
    trend = case.pool
    assert trend.is_growing
    together = Term("named", trend, share=0.9, is_pool_growing=True)
    growth = dataclasses.replace(
        search_growth(case), growers=[], trends={}, terms={"named": together}
    )
    verdict, missing = verdict_of(case, growth, [], [], [])
    assert verdict is RunVerdict.INCONCLUSIVE
    assert "many names of the program hold" in missing[0]
