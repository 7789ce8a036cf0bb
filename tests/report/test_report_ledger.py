"""The ledger as a waterfall: from what there was, over each term, to what there is."""

from __future__ import annotations

import pytest

from leakscope.model.report import Ledger, LedgerEntry
from leakscope.report.tables import LedgerView, ledger_view

MIB = 1 << 20


def view_of(before: int | None, *entries: tuple[str, int]) -> LedgerView:
    return ledger_view(
        Ledger(
            metric="rss",
            from_boundary=10,
            to_boundary=90,
            total_bytes=sum(size for _, size in entries),
            before_bytes=before,
            entries=[LedgerEntry(label=kind, bytes=size, kind=kind) for kind, size in entries],
        )
    )


def test_what_there_was_is_told_with_its_moment() -> None:
    ledger = Ledger(
        metric="rss",
        from_boundary=284,
        to_boundary=1932,
        total_bytes=9 * MIB,
        before_bytes=100 * MIB,
        entries=[],
        from_s=5.1,
        to_s=70.0,
        recorded_s=3700.0,
    )
    view = ledger_view(ledger)
    assert view.before is not None
    assert view.after is not None
    assert view.before.note == "boundary 284, 0:05 of 1:01:40"
    assert view.after.note == "boundary 1,932, 1:10 of 1:01:40"


def ends(bar: object) -> tuple[float, float]:
    left, width = (float(getattr(bar, name)[:-1]) for name in ("left", "width"))
    return left, left + width


def test_each_term_begins_where_the_one_before_ended() -> None:
    view = view_of(100 * MIB, ("named", 60 * MIB), ("garbage", -20 * MIB), ("unexplained", MIB))
    assert view.before is not None
    assert view.after is not None
    edge = ends(view.before.bar)[1]
    named, garbage, rest = (ends(row.bar) for row in view.rows)
    assert named[0] == pytest.approx(edge, abs=0.02)
    assert garbage[1] == pytest.approx(named[1], abs=0.02)
    assert rest[0] == pytest.approx(garbage[0], abs=0.02)
    assert ends(view.after.bar)[1] == pytest.approx(rest[1], abs=0.02)
    assert (view.before.size.text, view.after.size.text) == ("100 MiB", "141 MiB")


def test_bars_are_to_scale_from_zero_where_much_grew() -> None:
    view = view_of(100 * MIB, ("named", 100 * MIB))
    assert view.scale == ""
    assert view.before is not None
    assert ends(view.before.bar) == pytest.approx((0, 50), abs=0.02)


def test_a_scale_that_does_not_begin_at_zero_says_so() -> None:
    view = view_of(1000 * MIB, ("named", 10 * MIB))
    assert view.scale == "The bars begin at 997 MiB."
    assert view.before is not None
    assert view.before.bar.kind == "total torn"
    assert ends(view.rows[0].bar)[1] == pytest.approx(100, abs=0.02)


def test_without_a_reading_before_the_growth_stands_alone() -> None:
    view = view_of(None, ("named", 10 * MIB))
    assert (view.before, view.after, view.scale) == (None, None, "")
    assert ends(view.rows[0].bar) == pytest.approx((0, 100), abs=0.02)


def test_how_well_the_growth_is_known_is_told_in_parts() -> None:
    view = view_of(
        0, ("named", 40 * MIB), ("graph", 10 * MIB), ("slack", 25 * MIB), ("unexplained", 25 * MIB)
    )
    assert [(part.label, part.share) for part in view.parts] == [
        ("by name", "50 %"),
        ("measured otherwise", "25 %"),
        ("unexplained", "25 %"),
    ]
    assert [ends(part.bar) for part in view.parts] == [(0, 50), (50, 75), (75, 100)]


def test_next_to_nothing_has_no_parts() -> None:
    assert view_of(0, ("named", 100)).parts == []


@pytest.mark.parametrize("metric", ["rss+children_pss", "pss+children_pss", "tree"])
def test_what_a_ledger_of_several_processes_is_of_is_said_in_words(metric: str) -> None:
    ledger = Ledger(metric=metric, from_boundary=1, to_boundary=2, total_bytes=9, entries=[])
    view = ledger_view(ledger)
    assert "children" in view.metric
    assert not {"_", "+"} & set(view.metric)
