"""Ranks on the page: few in a row each, of many the middle and those that stand out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rank_samples import MIB, rank, report_of
from report_samples import clean

from leakscope.model.report import OddRank, RankAttempt, RankCourse
from leakscope.report import render_html
from leakscope.report.processes import FEW, ranks_view
from leakscope.report.runs import read_listed


def test_the_rank_that_differs_first_comes_first():
    odd = OddRank(rank=2, step=40, bytes=MIB, sentence="Rank 2 differs.")
    view = ranks_view(report_of([rank(n) for n in range(4)], odd_rank=odd))
    assert view is not None
    assert [row.name for row in view.rows] == ["rank 2", "rank 0", "rank 1", "rank 3"]
    assert [row.badge for row in view.rows] == ["differs first", "", "", ""]
    assert view.columns == [f"rank {n}" for n in range(4)]
    assert len(view.culprits[0].rates) == 4


def test_of_many_ranks_the_middle_and_those_that_stand_out_are_shown():
    ranks = [rank(n) for n in range(512)]
    ranks[7] = rank(7, steps=90, late_s=200.0)
    ranks[9] = rank(9, ended="killed (no closing record)")
    view = ranks_view(report_of(ranks))
    assert view is not None
    assert len(view.rows) < FEW
    assert {row.name: row.badge for row in view.rows[3:]} == {
        "rank 0": "least memory",
        "rank 7": "came late",
        "rank 9": "not completed",
        "rank 509": "most memory",
        "rank 510": "most memory",
        "rank 511": "most memory",
    }
    assert view.rows[1].name == "half have less"
    assert len(view.others) == 512
    assert view.culprits[0].rates == ["512 of 512 ranks", "1 KiB", "256 KiB", "512 KiB", "511"]


@pytest.mark.parametrize("count", [2, 17, 512])
def test_the_page_holds_every_rank(count):
    courses = [RankCourse(label="rank 0", points=[(1.0, 1e8), (2.0, 2e8)])] * 2
    page = render_html(report_of([rank(n) for n in range(count)], rank_courses=courses))
    assert f"process {99 + count}" in page
    assert "Memory by step" in page


def test_attempts_are_reported_with_the_one_that_is_judged():
    attempts = [
        RankAttempt(
            number=n,
            ranks=8,
            steps=100 * n,
            began_s=60.0 * n,
            duration_s=50,
            ended="killed",
            is_judged=n == 2,
        )
        for n in (1, 2)
    ]
    page = render_html(report_of([rank(0), rank(1)], attempts=attempts))
    assert "started 2 times" in page
    assert page.count("in this report") == 1


def test_a_process_alone_has_no_ranks():
    assert ranks_view(clean()) is None


def test_the_page_says_of_which_rank_the_timeline_and_the_tables_are():
    alone, together = render_html(clean()), render_html(report_of([rank(0), rank(1)], rank=1))
    assert "Memory over the run, rank 1" in together
    assert together.count('<span class="count">rank 1</span>') >= 3
    assert "Memory over the run, rank" not in alone


def test_a_list_tells_of_the_rank_that_needed_most(tmp_path: Path):
    path = tmp_path / "report.json"
    ranks = [rank(0), rank(7, peak_bytes=9 << 30, bytes_per_unit=5e9, grows=["losses"])]
    report = report_of(ranks)
    alike = [msgspec.structs.replace(r, unit=report.growth[0].unit) for r in ranks]
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report, ranks=alike)))
    listed = read_listed(path, name="run", path="run", page="run/report.html")
    assert listed.peak_bytes == 9 << 30
    assert listed.growth_bytes_per_unit == 5e9
