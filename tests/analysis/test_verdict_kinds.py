"""Which kinds of growth apply is read off the report, and never contradicts its verdict."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_runs import MIB, Program

from leakscope.analysis.verdict.analyse import analyse
from leakscope.analysis.verdict.kinds import find_kinds
from leakscope.model import gauge
from leakscope.model.report import (
    Answer,
    Cleared,
    Culprit,
    Finding,
    Gauged,
    KindAnswer,
    KindOfGrowth,
    Ledger,
    LedgerEntry,
    Overhead,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    ShownIn,
    Work,
)

REMEDY = Remedy(title="Bound it", text="Bound it.")
LEAK_BY_VERDICT = {
    RunVerdict.LEAK: Answer.YES,
    RunVerdict.CLEAN: Answer.NO,
    RunVerdict.INCONCLUSIVE: Answer.UNDECIDED,
    RunVerdict.OUT_OF_MEMORY: Answer.NO,
}


def culprit(name: str = "history", *, gained: int = 10 * MIB, **more: object) -> Culprit:
    fields: dict[str, object] = {
        "rank": 1, "name": name, "path": name, "kind": "list", "type": "list", "growth": "across",
        "unit": "step", "phase": "train", "bytes_per_unit": 1.0, "interval": (1.0, 1.0),
        "share": 0.5, "total_bytes": gained, "gained_bytes": gained, "severity": Severity.WARNING,
        "signature": name, "remedy": REMEDY,
    }  # fmt: skip
    return Culprit(**{**fields, **more})  # type: ignore[arg-type]


def finding(kind: str, size: int, severity: Severity = Severity.NOTE) -> Finding:
    return Finding(
        rank=1,
        kind=kind,
        title=kind.title(),
        text="",
        severity=severity,
        signature=kind,
        remedy=REMEDY,
        total_bytes=size,
    )


def report(verdict: RunVerdict = RunVerdict.CLEAN, **more: object) -> Report:
    every = (gauge.MALLOC_FREE, gauge.MAPPED, gauge.CHILDREN, gauge.CHILDREN_PSS)
    gauged = [
        Gauged(metric=name, unit="bytes", meaning="", readings=9, lowest=0, highest=0, last=0)
        for name in every
    ]
    fields: dict[str, object] = {
        "verdict": verdict, "headline": "", "growth": [], "culprits": [], "findings": [],
        "cleared": [], "errors": [], "work": Work(),
        "overhead": Overhead(wall_share=0.0, peak_bytes=0, censuses=5, gauged=gauged),
        "run": RunFacts(
            run_id="", path="", script="", command=[], created=0.0, environment={}, ended=""
        ),
    }  # fmt: skip
    return Report(**{**fields, **more})  # type: ignore[arg-type]


def answers(reported: Report) -> dict[KindOfGrowth, Answer]:
    return {kind.kind: kind.answer for kind in find_kinds(reported)}


def of(kind: KindOfGrowth, reported: Report) -> KindAnswer:
    return next(item for item in find_kinds(reported) if item.kind is kind)


def ledger(**terms: int) -> Ledger:
    entries = [LedgerEntry(label=kind, kind=kind, bytes=size) for kind, size in terms.items()]
    total = sum(terms.values())
    return Ledger(metric="rss", from_boundary=0, to_boundary=9, total_bytes=total, entries=entries)


@pytest.mark.parametrize("verdict", [v for v in RunVerdict if v is not RunVerdict.LEAK])
def test_a_leak_applies_where_the_verdict_is_one_and_nowhere_else(verdict: RunVerdict) -> None:
    found = answers(report(verdict, culprits=[culprit(severity=Severity.NOTE)]))
    assert found[KindOfGrowth.LEAK] is LEAK_BY_VERDICT[verdict]


def test_a_leak_has_the_bytes_of_all_accused_and_of_the_accused_alone() -> None:
    accused = [culprit("a"), culprit("b"), culprit("c", severity=Severity.NOTE)]
    leak = of(KindOfGrowth.LEAK, report(RunVerdict.LEAK, culprits=accused))
    assert (leak.answer, leak.bytes, leak.section) == (Answer.YES, 20 * MIB, ShownIn.CULPRITS)
    assert (leak.subject, leak.signature) == ("a", "a")


def test_what_two_accused_hold_counts_once() -> None:
    accused = [culprit("a", also_held_by=["b"]), culprit("b", also_held_by=["a"])]
    assert of(KindOfGrowth.LEAK, report(RunVerdict.LEAK, culprits=accused)).bytes == 10 * MIB


def test_a_leak_without_a_name_is_shown_by_its_finding() -> None:
    reported = report(
        RunVerdict.LEAK, findings=[finding("unexplained", 30 * MIB, Severity.WARNING)]
    )
    leak = of(KindOfGrowth.LEAK, reported)
    assert (leak.bytes, leak.section) == (30 * MIB, ShownIn.FINDINGS)


def test_a_run_that_ended_for_want_of_memory_may_still_be_open() -> None:
    reported = report(RunVerdict.OUT_OF_MEMORY, missing=["profile longer"])
    assert answers(reported)[KindOfGrowth.LEAK] is Answer.UNDECIDED


def test_what_climbs_in_a_phase_is_its_peak() -> None:
    reported = report(culprits=[culprit(growth="within", severity=Severity.NOTE)])
    assert of(KindOfGrowth.PEAK, reported).bytes == 10 * MIB


def test_what_came_to_a_bound_is_a_cache_and_what_never_grew_is_none() -> None:
    bounded = Cleared(
        name="cache", path="", reason="bounded: 500 entries", kind="bounded", total_bytes=MIB
    )
    constant = msgspec.structs.replace(bounded, kind="constant", reason="constant: no growth")
    assert of(KindOfGrowth.CACHE, report(cleared=[bounded, constant])).bytes == MIB
    assert answers(report(cleared=[constant]))[KindOfGrowth.CACHE] is Answer.NO


@pytest.mark.parametrize(
    ("kind", "of_finding"),
    [
        (KindOfGrowth.ALLOCATOR, "allocator_slack"),
        (KindOfGrowth.GARBAGE, "garbage"),
        (KindOfGrowth.COPY_ON_WRITE, "copy_on_write"),
        (KindOfGrowth.CHILDREN, "children"),
        (KindOfGrowth.DEVICE_CACHE, "device_cache"),
        (KindOfGrowth.FRAGMENTATION, "fragmentation"),
    ],
)
def test_a_finding_answers_for_its_kind_alone(kind: KindOfGrowth, of_finding: str) -> None:
    reported = report(findings=[finding(of_finding, 200 * MIB)])
    assert of(kind, reported).bytes == 200 * MIB
    assert [item for item, answer in answers(reported).items() if answer is Answer.YES] == [kind]


@pytest.mark.parametrize(
    ("kind", "term"),
    [
        (KindOfGrowth.ALLOCATOR, "slack"),
        (KindOfGrowth.GARBAGE, "garbage"),
        (KindOfGrowth.FILES, "mapped"),
        (KindOfGrowth.CHILDREN, "children"),
        (KindOfGrowth.DEVICE_CACHE, "cached"),
    ],
)
def test_a_term_of_the_ledger_answers_for_its_kind_once_it_is_much(
    kind: KindOfGrowth, term: str
) -> None:
    found = of(kind, report(ledgers=[ledger(**{term: 100 * MIB})]))
    assert (found.answer, found.bytes, found.section) == (Answer.YES, 100 * MIB, ShownIn.LEDGER)
    assert answers(report(ledgers=[ledger(**{term: 1000})]))[kind] is Answer.NO


def test_a_collector_that_is_off_without_garbage_is_no_garbage() -> None:
    assert (
        answers(report(findings=[finding("collector_off", 0)]))[KindOfGrowth.GARBAGE] is Answer.NO
    )


def test_what_was_not_read_is_not_reported_as_absent() -> None:
    blind = report(overhead=Overhead(wall_share=0.0, peak_bytes=0))
    found = answers(blind)
    assert found.pop(KindOfGrowth.LEAK) is Answer.NO
    left = {kind for kind, answer in found.items() if answer is not Answer.NOT_MEASURED}
    assert not left


def test_growth_in_a_child_is_the_childrens() -> None:
    reported = report(RunVerdict.LEAK, culprits=[culprit(process="child 1 of 2")])
    assert answers(reported)[KindOfGrowth.CHILDREN] is Answer.YES
    own = report(RunVerdict.LEAK, culprits=[culprit(process="main process")])
    assert answers(own)[KindOfGrowth.CHILDREN] is Answer.NO
    workers = of(KindOfGrowth.CHILDREN, report(RunVerdict.LEAK, culprits=[culprit(workers=3)]))
    assert workers.bytes == 30 * MIB


def test_a_report_has_an_answer_for_each_kind_in_the_order_of_the_table() -> None:
    reported = analyse(Program().leak("main()·history", 1 * MIB).build())
    assert [kind.kind for kind in reported.kinds] == list(KindOfGrowth)
    assert reported.verdict is RunVerdict.LEAK
    assert reported.kinds[0].subject == reported.culprits[0].name
    assert reported.kinds[0].bytes == reported.culprits[0].gained_bytes


def test_a_run_that_is_only_watched_says_what_was_not_measured() -> None:
    run = Program().build()
    run.main.header = msgspec.structs.replace(run.main.header, role="monitor")
    run.main.measurements = [replace(each, census=None) for each in run.main.measurements]
    found = {kind.kind: kind.answer for kind in analyse(run).kinds}
    assert found[KindOfGrowth.GARBAGE] is Answer.NOT_MEASURED
    assert found[KindOfGrowth.DEVICE_CACHE] is Answer.NOT_MEASURED


SIZES = st.integers(0, 1 << 40)
CULPRITS = st.builds(
    culprit,
    st.sampled_from("abc"),
    gained=SIZES,
    growth=st.sampled_from(["across", "within"]),
    severity=st.sampled_from(Severity),
    also_held_by=st.lists(st.sampled_from("abc"), max_size=2),
    workers=st.integers(0, 3),
    process=st.sampled_from(["", "main process", "child 1 of 2"]),
)
FINDINGS = st.builds(
    finding,
    st.sampled_from(["allocator_slack", "garbage", "unexplained", "children", "copy_on_write"]),
    SIZES,
    st.sampled_from(Severity),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CULPRITS, max_size=4), st.lists(FINDINGS, max_size=4), st.booleans())
def test_whatever_a_report_has_its_verdict_is_never_contradicted(
    culprits: list[Culprit], findings: list[Finding], is_open: bool
) -> None:
    accused = [c for c in [*culprits, *findings] if c.severity is not Severity.NOTE]
    verdict = RunVerdict.INCONCLUSIVE if is_open else RunVerdict.CLEAN
    verdict = RunVerdict.LEAK if accused else verdict
    reported = report(verdict, culprits=culprits, findings=findings)
    found = find_kinds(reported)
    assert [item.kind for item in found] == list(KindOfGrowth)
    assert found[0].answer is LEAK_BY_VERDICT[verdict]
    for item in found:
        applies = item.answer is Answer.YES
        assert (item.section is not None) is applies
        assert item.bytes is None or (applies and item.bytes >= 0)
    if accused:
        assert found[0].signature in {item.signature for item in accused}
