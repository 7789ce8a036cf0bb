"""The zoo's own judgement: right answers count, wrong ones are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus import Case, cases, feeding_lines
from run import row, summary_text
from running import Outcome
from scoring import Score, score, summarise
from truth import Leak, Truth
from zoo_page import render

PROGRAM = '''"""Keeps what it sees."""
kept, other = [], []
for step in range(9):
    kept.append(
        step  # feeds: kept
    )
    other.append(step)  # feeds: other
'''


def a_case(folder: Path, *leaks: Leak, verdicts: tuple[str, ...] = ("leak",)) -> Case:
    program = folder / "keeps.py"
    program.write_text(PROGRAM)
    return Case("keeps", program, Truth(leaks, verdicts))


def culprit(name: str, line: int, rate: float = 100.0, **more: Any) -> dict[str, Any]:
    reported = {"name": name, "severity": "warning", "growth": "across", "unit": "step"}
    return {**reported, "bytes_per_unit": rate, "fed_at": [f"keeps.py:{line}"], **more}


def a_report(*culprits: dict[str, Any], verdict: str = "leak") -> dict[str, Any]:
    return {
        "verdict": verdict,
        "headline": "So it is.",
        "culprits": list(culprits),
        "findings": [],
        "growth": [{"metric": "pss", "explained_share": 0.95, "named_share": 0.6}],
        "overhead": {"wall_share": 0.01},
    }


KEPT, OTHER = Leak(("kept",), key="kept"), Leak(("other",), key="other")
TRUE_BYTES = [{"step": 100.0}, {"step": 10.0}]


def judged(case: Case, *culprits: dict[str, Any], verdict: str = "leak") -> Score:
    bytes_per_unit = TRUE_BYTES[: len(case.leaks)]
    return score(case, Outcome(a_report(*culprits, verdict=verdict), 3.0, bytes_per_unit))


def test_a_right_report_is_right(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), culprit("kept", 4))
    assert single.right
    assert single.first_right and single.line_right and single.rate_right
    assert single.wrong == []


def test_a_leak_that_is_missed_is_wrong(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), verdict="clean")
    assert not single.right
    assert single.leaks[0].rank is None


def test_the_lesser_of_two_leaks_first_is_wrong(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT, OTHER), culprit("other", 7, 10.0), culprit("kept", 4))
    assert not single.right
    assert [leak.rank for leak in single.leaks] == [2, 1]


def test_either_of_two_leaks_as_great_may_come_first(tmp_path: Path) -> None:
    case = a_case(tmp_path, KEPT, OTHER)
    found = a_report(culprit("other", 7, 90.0), culprit("kept", 4))
    assert score(case, Outcome(found, 3.0, [{"step": 100.0}, {"step": 90.0}])).right


def test_another_line_is_wrong_though_the_name_is_right(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), culprit("kept", 7))
    assert single.first_right and not single.line_right and not single.right


def test_a_rate_is_compared_in_the_unit_in_which_it_is_reported(tmp_path: Path) -> None:
    case = a_case(tmp_path, KEPT)
    assert not judged(case, culprit("kept", 4, 120.0)).rate_right
    assert not judged(case, culprit("kept", 4, 100.0, unit="epoch")).rate_right


def test_growth_of_another_kind_is_another_claim(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), culprit("kept", 4, growth="within"))
    assert single.leaks[0].rank is None


def test_a_wrong_alarm_next_to_a_right_one_is_seen(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), culprit("kept", 4), culprit("innocent", 2))
    assert single.first_right and single.wrong == ["innocent"] and not single.right


def test_a_note_accuses_nobody(tmp_path: Path) -> None:
    case = a_case(tmp_path, verdicts=("clean",))
    single = judged(case, culprit("innocent", 2, severity="note"), verdict="clean")
    assert single.right and single.wrong == []


def test_a_false_alarm_is_counted(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, verdicts=("clean",)), culprit("innocent", 2))
    assert not single.right
    assert summarise([single]).false_alarms == 1


def test_a_run_too_short_may_be_inconclusive(tmp_path: Path) -> None:
    case = a_case(tmp_path, KEPT, verdicts=("leak", "inconclusive"))
    assert judged(case, verdict="inconclusive").right
    assert not judged(case, verdict="clean").right
    assert not judged(a_case(tmp_path, KEPT), verdict="inconclusive").right


def test_a_program_without_a_report_is_shown_with_its_fault(tmp_path: Path) -> None:
    single = score(a_case(tmp_path, KEPT), Outcome({}, 1.0, fault="exit code 1: boom"))
    assert not single.right
    summary = summarise([single])
    assert summary.faults == 1 and summary.first_right == 0 and summary.leaks == 0
    assert "boom" in row(single)
    assert "boom" in render([single], summary)


def test_the_page_and_the_table_show_what_is_wrong(tmp_path: Path) -> None:
    single = judged(a_case(tmp_path, KEPT), culprit("<innocent>", 2))
    summary = summarise([single])
    assert "WRONG" in row(single) and "<innocent>" in row(single)
    assert "blamed wrongly: <code>&lt;innocent&gt;</code>" in render([single], summary)
    assert "within three      0 of 1" in summary_text(summary)


def test_a_marked_statement_counts_as_a_whole(tmp_path: Path) -> None:
    case = a_case(tmp_path, KEPT, OTHER)
    assert feeding_lines(case.program, KEPT) == {4, 5, 6}
    assert feeding_lines(case.program, OTHER) == {7}


def test_every_program_has_a_truth_and_every_leak_its_lines() -> None:
    known = {case.program for case in cases()}
    assert set((Path(__file__).parent / "cases").glob("*.py")) <= known
    assert all(case.program.exists() for case in cases())
    assert all(feeding_lines(case.program, leak) for case in cases() for leak in case.leaks)


def test_growth_without_a_name_is_native_where_the_library_is_named(tmp_path: Path) -> None:
    case = a_case(tmp_path, Leak(("native",), key="kept"))
    for title, rank in (("Native memory grows in libz.so.1, called at keeps.py:4", 1),
                        ("Memory grows outside everything that has a name", None)):  # fmt: skip
        found = culprit("", 4, kind="unexplained", title=title)
        report = a_report() | {"findings": [found]}
        judged = score(case, Outcome(report, 1.0, TRUE_BYTES[:1], ""))
        assert judged.leaks[0].rank == rank
