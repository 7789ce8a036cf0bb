"""What a phase reached between its boundaries is reported below the table."""

from __future__ import annotations

import msgspec
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import PhaseMemory
from leakscope.report import render_html

MIB = 1 << 20


def reported_for(metric: str, highest: int | None, raised: int | None) -> str:
    """Return the text of a page whose training reached so much of a gauge."""
    phase = PhaseMemory(
        phase="train", occurrences=3, metric=metric, before_bytes=400 * MIB, peak_bytes=430 * MIB,
        after_bytes=410 * MIB, kept_bytes=MIB, highest_bytes=highest, raised_bytes=raised,
    )  # fmt: skip
    report = msgspec.structs.replace(samples.leaking(), phases=[phase])
    return " ".join(read_page(render_html(report)).text.split())


def test_resident_memory_is_reported_by_its_height() -> None:
    text = reported_for("rss", 501 * MIB, 197 * MIB)
    assert "Between boundaries, train reached 501 MiB of Process memory (RSS)." in text


def test_a_device_is_reported_by_what_the_phase_added_too() -> None:
    text = reported_for("cuda:0.allocated", 501 * MIB, 197 * MIB)
    assert "Between boundaries, train raised the peak of " in text
    assert " by +197 MiB to 501 MiB." in text


def test_a_phase_that_reached_no_more_has_no_sentence() -> None:
    assert "Between boundaries, train" not in reported_for("rss", None, 3 * MIB)
