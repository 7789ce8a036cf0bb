"""The ledger as a waterfall: from what there was, over each term, to what there is."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import (
    Ledger,
    LedgerEntry,
    MappingTerm,
    NativeContents,
    PeakMemory,
    PeakSite,
    Report,
)
from leakscope.model.trend import TrendVerdict
from leakscope.report import render_html, render_text
from leakscope.report.tables import ledger_view

MIB = 1 << 20


def view_of(before: int | None, *entries: tuple[str, int]) -> SimpleNamespace:
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


def test_what_there_was_is_reported_with_its_moment() -> None:
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


def test_how_well_the_growth_is_known_is_reported_in_parts() -> None:
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
def test_what_a_ledger_of_several_processes_is_of_is_reported_in_words(metric: str) -> None:
    ledger = Ledger(metric=metric, from_boundary=1, to_boundary=2, total_bytes=9, entries=[])
    view = ledger_view(ledger)
    assert "children" in view.metric
    assert not {"_", "+"} & set(view.metric)


MAPPINGS = [
    MappingTerm(
        kind="mapped_arenas",
        label="thread arenas of glibc",
        bytes=212 * MIB,
        held_bytes=300 * MIB,
        verdict=TrendVerdict.GROWING,
        bytes_per_unit=2 * MIB,
        unit="step",
    ),
    MappingTerm(
        kind="mapped_file",
        label="of these data.arrow",
        file="data.arrow",
        bytes=90 * MIB,
        held_bytes=90 * MIB,
        verdict=TrendVerdict.BOUNDED,
    ),
]
PEAK = PeakMemory(
    boundary=90,
    step=1200,
    time_s=3.0,
    private_bytes=900 * MIB,
    highest_bytes=930 * MIB,
    sampled_bytes=700 * MIB,
    by_owner={"tensor": 400 * MIB},
    sites=[
        PeakSite(
            location="train.py:31",
            library="libtorch_cpu.so",
            function="at::empty",
            owner="tensor",
            bytes=400 * MIB,
            interval=(380 * MIB, 420 * MIB),
        ),
        PeakSite(
            location="", library="libav.so", owner="library", bytes=MIB, interval=(0, 2 * MIB)
        ),
    ],
)


def with_native(**more: object) -> Report:
    return msgspec.structs.replace(samples.leaking(), mappings=MAPPINGS, peak=PEAK, **more)


def test_kinds_of_mappings_are_shown_as_no_further_terms() -> None:
    page = read_page(render_html(with_native())).text
    assert "these amounts are no further terms" in page
    assert "thread arenas of glibc" in page
    assert "grows, 2 MiB per step" in page
    assert "of these data.arrow" in page
    text = " ".join(render_text(with_native()).split())
    assert "by kind of mapping: thread arenas of glibc +212 MiB" in text
    assert "data.arrow" not in text


def test_the_peak_is_shown_with_its_lines_and_what_was_missed() -> None:
    page = read_page(render_html(with_native())).text
    assert "largest: step 1,200, 900 MiB of its own" in page
    assert "The highest reading was 30 MiB higher." in page
    assert "libtorch_cpu.so · at::empty" in page
    assert "380 to 420 MiB" in page
    assert "no line of the program's" in page
    text = " ".join(render_text(with_native()).split())
    assert "train.py:31 400 MiB (data of tensors), libav.so 1 MiB (libav.so)" in text


def test_without_either_nothing_is_reported() -> None:
    page = read_page(render_html(samples.leaking())).text
    assert "By kind of mapping" not in page
    assert "process was largest" not in page


def test_native_memory_that_items_keep_is_reported_with_its_line() -> None:
    report = samples.leaking()
    native = NativeContents(library="libav.so", allocated_at="data.py:12", gained_bytes=53 * MIB)
    first, *others = report.culprits
    culprits = [msgspec.structs.replace(first, native=native), *others]
    text = " ".join(render_text(with_native(culprits=culprits)).split())
    assert "items keep 53 MiB of native memory: libav.so at data.py:12" in text
