"""The table of kinds of growth: what applies is linked to what shows it."""

from __future__ import annotations

import msgspec
import pytest
from page_reader import read_page
from report_samples import KINDS, clean, leaking

from leakscope.model.documents import PartKind
from leakscope.model.report import Answer, KindAnswer, KindOfGrowth, ShownIn
from leakscope.report import render_html, words
from leakscope.report.explaining import explain_run
from leakscope.report.page import report_page


def test_what_applies_has_a_row_and_the_others_are_named_by_their_answer() -> None:
    view = report_page(leaking()).kinds
    assert view is not None
    assert [row.kind.kind for row in view.rows] == [
        KindOfGrowth.LEAK,
        KindOfGrowth.CACHE,
        KindOfGrowth.ALLOCATOR,
    ]
    assert [(fact.label, fact.value) for fact in view.others] == [
        ("No", "peak of a phase, a device's cache"),
        ("Not measured", "garbage"),
    ]


def test_a_row_leads_to_the_culprit_that_shows_it_or_to_its_section() -> None:
    report = leaking()
    first = msgspec.structs.replace(KINDS[0], signature=report.culprits[1].signature)
    report = msgspec.structs.replace(report, kinds=[first, *KINDS[1:]])
    page = report_page(report)
    assert page.kinds is not None
    leak, cache, allocator = page.kinds.rows
    assert leak.link == page.culprits[1].anchor
    assert (cache.link, cache.shown, cache.is_code) == ("cleared", "Tokenizer.cache", True)
    assert (allocator.link, allocator.shown, allocator.is_code) == ("ledger", "Ledger", False)
    seen = read_page(render_html(report))
    assert {f"#{row.link}" for row in page.kinds.rows} <= set(seen.links)
    assert {row.link for row in page.kinds.rows} <= set(seen.ids)


def test_a_leak_that_is_not_decided_has_a_row_without_bytes() -> None:
    open_ = KindAnswer(kind=KindOfGrowth.LEAK, answer=Answer.UNDECIDED)
    page = render_html(msgspec.structs.replace(clean(), kinds=[open_]))
    assert '<td>Not decided yet</td><td class="amount">–</td>' in page


def test_a_report_of_an_older_version_has_no_such_table() -> None:
    report = msgspec.structs.replace(leaking(), kinds=[])
    assert report_page(report).kinds is None
    assert "kinds" not in read_page(render_html(report)).ids
    assert PartKind.KINDS not in {part.kind for part in explain_run(report, "run", 9999).parts}


def test_an_explanation_has_it_in_a_line() -> None:
    parts = explain_run(leaking(), "run", 9999).parts
    (line,) = (part.text for part in parts if part.kind is PartKind.KINDS)
    assert line == (
        "leak: yes, 9 GiB (main.trainer.predictions); cache that fills: yes, 40 MiB "
        "(Tokenizer.cache); the C allocator's free memory: yes, 40 MiB; no: peak of a phase, a "
        "device's cache; not measured: garbage"
    )


@pytest.mark.parametrize("kind", KindOfGrowth)
def test_every_kind_has_a_name_and_a_meaning(kind: KindOfGrowth) -> None:
    assert words.GROWTH_KINDS[kind]
    assert words.KIND_MEANINGS[kind].endswith(".")
    assert set(words.ANSWERS) == set(Answer)


def test_every_section_that_shows_a_kind_stands_on_the_page() -> None:
    known = {"culprits", "findings", "cleared", "ledger", "workers"}
    assert {section.value for section in ShownIn} == known


def test_names_of_the_programs_are_text_on_the_page() -> None:
    hostile = msgspec.structs.replace(KINDS[0], subject="<script>alert(1)</script>")
    text = render_html(msgspec.structs.replace(leaking(), kinds=[hostile]))
    assert "<script>alert(1)" not in text
