"""What grows with an event is reported per event, next to its rate, in every form of a report."""

from __future__ import annotations

import json

import msgspec
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import EventGrowth, EventRate, MetricGrowth, Report
from leakscope.report import render_html, render_json, render_summary, render_text
from leakscope.report.markdown import suspect_markdown

MIB = 1 << 20
PER_SAVE = "18 MiB per save (31 saves)"


def by_event(*, is_by_event: bool = True) -> EventGrowth:
    save = EventRate(
        event="save", noun="save", is_work=False, bytes_each=18.0 * MIB, count=31, share=1.0
    )
    step = EventRate(event="step", noun="step", is_work=True, bytes_each=0.0, count=620, share=0.0)
    return EventGrowth(rates=[save], work=step, is_by_event=is_by_event, indistinct=["load"])


def reported(growth: EventGrowth) -> Report:
    report = samples.leaking()
    first = msgspec.structs.replace(report.culprits[0], per_event=growth)
    return msgspec.structs.replace(report, culprits=[first, *report.culprits[1:]])


def forms(report: Report) -> list[str]:
    return [
        read_page(render_html(report)).text,
        render_text(report),
        render_summary(report, report_path="report.html"),
        suspect_markdown(report.culprits[0]),
    ]


def test_the_rate_per_event_stands_next_to_the_rate_in_every_form() -> None:
    rate = samples.leaking().culprits[0].bytes_per_unit
    for form in forms(reported(by_event())):
        assert PER_SAVE in " ".join(form.split())
    assert rate > 0
    first = json.loads(render_json(reported(by_event())))["culprits"][0]
    assert first["bytes_per_unit"] == rate
    assert first["per_event"]["rates"][0]["count"] == 31
    assert first["per_event"]["work"]["bytes_each"] == 0


def test_what_grows_with_the_work_is_reported_as_before() -> None:
    assert forms(reported(by_event(is_by_event=False))) == forms(samples.leaking())


def test_memory_of_the_process_is_reported_per_event_in_the_table_of_rates() -> None:
    report = samples.leaking()
    grown = [
        MetricGrowth(
            metric="rss",
            unit="step",
            bytes_per_unit=1e6,
            interval=(9e5, 1.1e6),
            explained_share=None,
            per_event=by_event(),
        )
    ]
    page = read_page(render_html(msgspec.structs.replace(report, growth=grown)))
    assert PER_SAVE in " ".join(page.text.split())
