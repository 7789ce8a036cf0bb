"""How much of the heap the censuses of a run have seen."""

from __future__ import annotations

from leakscope.analysis.accounting.run_facts import coverage
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import OverheadRecord
from leakscope.model.report import CensusCoverage, Overhead
from leakscope.report.measuring import measuring_view


def census(scope: CensusScope, **more: object) -> Census:
    return Census(scope=scope, rows=[], cutoff_bytes=1, objects=1, heap_bytes=1, **more)


def test_kinds_are_counted_and_the_largest_difference_is_found():
    full = CensusScope.FULL
    drift = {"heap": -70, "native": 3, "row": 5}
    censuses = [
        census(CensusScope.FOCUSED),
        census(CensusScope.FOCUSED, elsewhere_bytes=0),
        census(full, whole=True),
        census(full),
        census(full, whole=True, drift_bytes=drift),
    ]
    record = OverheadRecord(
        boundary=0, postponed_by_budget=4, left_out_by_pause=2, made_cheaper_by_pause=1
    )
    assert coverage(censuses, record) == CensusCoverage(
        taken=5,
        full=3,
        whole=2,
        weighed=1,
        postponed_by_budget=4,
        left_out_by_pause=2,
        made_cheaper_by_pause=1,
        checked=1,
        largest_drift_bytes=70,
    )


def test_without_a_check_no_difference_is_claimed():
    assert coverage([census(CensusScope.FULL)], None).largest_drift_bytes is None


def test_the_report_tells_the_longest_pause_and_what_was_left_out():
    overhead = Overhead(
        wall_share=0.01,
        peak_bytes=0,
        longest_pause_s=0.4,
        longest_pause="whole",
        max_pause_s=0.1,
        census_coverage=CensusCoverage(
            taken=9,
            full=7,
            whole=2,
            weighed=1,
            left_out_by_pause=3,
            checked=1,
            largest_drift_bytes=0,
        ),
    )
    facts = {fact.label: fact.value for fact in measuring_view(overhead, 10.0).facts}
    assert "object by object" in facts["Longest pause"]
    assert facts["of them of the whole heap"].startswith("7")
    assert facts["of the others, weighed all that is new"] == "1 of 2"
    assert facts["Left out for their pause"].startswith("3 censuses")
    assert "no difference" in facts["Held against a whole walk"]
