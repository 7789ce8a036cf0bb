"""What grows in DataLoader workers, reported alike wherever a page speaks of it."""

from __future__ import annotations

import msgspec
import report_samples as samples

from leakscope.model.report import Ledger, LedgerEntry, MetricGrowth, Report, WorkerMemory
from leakscope.report import words
from leakscope.report.measuring import noise_words
from leakscope.report.page import report_page

MIB = 1024**2
ROW = WorkerMemory(loader=1, worker=0, batches=250, pid=7, private_last_bytes=200 * MIB)
NAMED = "in DataLoader workers: Frames.cache by 4 MiB per pass in 2 workers"


def growing(metric: str, rate: float, low: float) -> MetricGrowth:
    return MetricGrowth(
        metric=metric,
        unit="epoch",
        bytes_per_unit=rate,
        interval=(low, 2 * rate),
        explained_share=None,
    )


def in_workers() -> Report:
    """A leak in two workers, of which the account of this process sees processes that grow."""
    report = samples.leaking()
    culprit = msgspec.structs.replace(
        report.culprits[0],
        name="Frames.cache",
        growth="across",
        bytes_per_unit=2.0 * MIB,
        unit="pass",
        workers=2,
    )
    children = LedgerEntry(label="child processes", bytes=20 * MIB, kind="children")
    return msgspec.structs.replace(
        report,
        culprits=[culprit],
        workers=[ROW],
        growth=[growing("rss", 10.0, 0.0), growing("children_pss", 4.0 * MIB, 4.0 * MIB)],
        ledgers=[
            Ledger(
                metric="tree",
                from_boundary=1,
                to_boundary=9,
                total_bytes=20 * MIB,
                entries=[children],
            )
        ],
    )


def test_growth_of_child_processes_names_what_grows_in_them() -> None:
    page = report_page(in_workers())
    assert [note for _, note in page.growth] == ["", NAMED]
    assert [row.note for row in page.ledgers[0].rows] == [NAMED]


def test_growth_of_child_processes_names_nothing_where_no_worker_leaks() -> None:
    page = report_page(msgspec.structs.replace(in_workers(), culprits=[samples.boxes_culprit()]))
    assert [note for _, note in page.growth] == ["", ""]


def test_what_a_worker_holds_is_of_its_last_look() -> None:
    card = report_page(in_workers()).culprits[0]
    assert card.device == "on host, in one worker when last looked at"
    assert report_page(samples.leaking()).culprits[0].device == "on host"


def test_a_pass_is_explained_where_workers_count_in_it() -> None:
    page = report_page(in_workers())
    assert page.leading is not None
    assert page.leading.rate is not None
    assert page.leading.rate.unit_meaning == page.words["pass"] == words.TERMS["pass"]
    assert "pass" not in report_page(samples.clean()).words


def test_rates_of_a_clean_run_are_reported_to_accuse_nothing() -> None:
    clean = samples.clean()
    assert "noise" in report_page(clean).noise
    assert "worker" not in noise_words(clean)
    assert not noise_words(samples.leaking())
    assert not noise_words(msgspec.structs.replace(clean, growth=[]))


def test_children_that_grow_in_a_clean_run_come_with_the_reason_why_that_is_none() -> None:
    uneven = [growing("children_pss", 17.0 * MIB, 9.0 * MIB)]
    even = [growing("children_pss", 17.0 * MIB, 16.0 * MIB)]
    clean = msgspec.structs.replace(samples.clean(), workers=[ROW], growth=uneven)
    assert "as uneven as where a cache fills" in noise_words(clean)
    assert "judged by its own recording" in noise_words(clean)
    shown = noise_words(msgspec.structs.replace(clean, growth=even))
    assert "uneven as" not in shown
    assert "judged by its own recording" in shown
