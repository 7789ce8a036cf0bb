"""A culprit that is known says whose doing it is and where that is documented, in every form."""

from __future__ import annotations

import json
import re
from datetime import date

import msgspec
import pytest
from report_samples import comparison, leaking

from leakscope.analysis import compare
from leakscope.analysis.gate import Allowed, check
from leakscope.model.comparison import ChangeKind
from leakscope.model.known import Nature, Recognised
from leakscope.model.report import Report
from leakscope.report import (
    render_comparison_html,
    render_comparison_text,
    render_html,
    render_json,
    render_summary,
    render_text,
)
from leakscope.report.gates import FORMS, render_check
from leakscope.report.markdown import change_markdown, render_comparison_markdown, suspect_markdown

LINK = "https://github.com/huggingface/accelerate/pull/3391"
FAULT = Recognised(
    id="accelerate-dataloader-references",
    title="Loaders that were left in the middle are kept for good",
    library="accelerate",
    version="1.3.0",
    nature=Nature.FAULT,
    cause="GradientState refers to each loader until it is exhausted.",
    link=LINK,
    source="leakscope",
)

LONG = "The trainer gathers the keys and values of a cache that is used again and again"


def report(**changes: object) -> Report:
    sample = leaking()
    first, *others = sample.culprits
    known = msgspec.structs.replace(FAULT, **changes)
    first = msgspec.structs.replace(first, known=known)
    return msgspec.structs.replace(sample, culprits=[first, *others])


def checked(form: str, **changes: object) -> str:
    return render_check(check(report(**changes), Allowed(today=date(2026, 1, 1))), form)


@pytest.mark.parametrize(
    ("nature", "words"),
    [
        (Nature.FAULT, "Known fault of accelerate 1.3.0"),
        (Nature.USAGE, "Known behaviour of accelerate 1.3.0"),
    ],
)
class TestEveryForm:
    def test_the_page(self, nature: Nature, words: str) -> None:
        page = render_html(report(nature=nature))
        (shown,) = re.findall(r'<aside class="known.*?</aside>', page, re.DOTALL)
        assert f"<b>{words}:</b> {FAULT.title}. {FAULT.cause}" in shown
        assert f'<a href="{LINK}" rel="noreferrer">{LINK}</a>' in shown
        assert ('class="known fault"' in shown) is (nature is Nature.FAULT)

    def test_the_terminal(self, nature: Nature, words: str) -> None:
        for text in (
            render_text(report(nature=nature), width=120),
            render_summary(report(nature=nature), report_path="report.html", width=120),
        ):
            assert f"{words}: Loaders" in text
            assert f" {LINK}\n" in text

    def test_json(self, nature: Nature, words: str) -> None:
        shown = json.loads(render_json(report(nature=nature)))["culprits"][0]["known"]
        assert words.startswith(f"Known {'fault' if shown['nature'] == 'fault' else 'behaviour'}")
        assert (shown["link"], shown["version"]) == (LINK, "1.3.0")

    def test_markdown_of_a_culprit(self, nature: Nature, words: str) -> None:
        text = suspect_markdown(report(nature=nature).culprits[0])
        assert f"- **known:** {words}: {FAULT.title}, <{LINK}>" in text

    @pytest.mark.parametrize("form", FORMS)
    def test_checks(self, form: str, nature: Nature, words: str) -> None:
        text = checked(form, nature=nature)
        assert LINK in text
        assert words in text.replace("\\.", ".") or form == "json"

    def test_sarif_has_it_as_properties_too(self, nature: Nature, words: str) -> None:
        results = json.loads(checked("sarif", nature=nature))["runs"][0]["results"]
        shown = [
            r["properties"]["knownCulprit"] for r in results if "knownCulprit" in r["properties"]
        ]
        assert [(item["nature"], item["link"]) for item in shown] == [(nature.value, LINK)]


@pytest.mark.parametrize(("width", "most"), [(80, 30), (120, 30)])
def test_a_terminal_tells_whole_titles_in_the_lines_that_it_has(width: int, most: int) -> None:
    shown = report(library="transformers", version="5.23.0", nature=Nature.USAGE, title=LONG)
    known = msgspec.structs.replace(FAULT, title=LONG)
    culprits = [msgspec.structs.replace(item, known=known) for item in shown.culprits * 3]
    shown = msgspec.structs.replace(shown, culprits=culprits)
    text = render_text(shown, width=width)
    lines = text.splitlines()
    assert f"Known fault of accelerate 1.3.0: {LONG}" in " ".join(text.split())
    assert max(map(len, lines)) <= max(width, len(LINK) + 3)
    assert len(lines) <= most


@pytest.mark.parametrize("known", [FAULT, None])
def test_a_finding_says_so_too(known: Recognised | None) -> None:
    sample = leaking()
    findings = [msgspec.structs.replace(finding, known=known) for finding in sample.findings]
    shown = msgspec.structs.replace(sample, findings=findings)
    words = f"Known fault of accelerate 1.3.0: {FAULT.title}"
    texts = [
        render_html(shown).replace("</b>", "").replace("<b>", ""),
        render_text(shown, width=120),
        json.loads(render_json(shown))["findings"][0]["known"] and words,
    ]
    for text in texts:
        assert (words in (text or "")) is (known is not None)


@pytest.mark.parametrize("known", [FAULT, None])
def test_a_row_of_a_comparison_says_so_too(known: Recognised | None) -> None:
    sample = comparison()
    changes = [msgspec.structs.replace(change, known=known) for change in sample.culprits]
    shown = msgspec.structs.replace(sample, culprits=changes)
    words = "Known fault of accelerate 1.3.0"
    assert (f"<b>{words}:</b>" in render_comparison_html(shown)) is (known is not None)
    assert (words in render_comparison_text(shown, width=120)) is (known is not None)
    assert (f"([{words}]({LINK}))" in render_comparison_markdown(shown)) is (known is not None)
    assert (f"- **known:** {words}" in change_markdown(changes[0])) is (known is not None)
    assert json.loads(render_json(shown))["culprits"][0]["known"] == (
        None if known is None else msgspec.to_builtins(known)
    )


def test_a_comparison_takes_over_what_either_run_says() -> None:
    before, after = report(), leaking()
    (first, *_) = compare(before, msgspec.structs.replace(after, culprits=[])).culprits
    assert (first.change, first.known) == (ChangeKind.FIXED, FAULT)
    shown = {change.name: change.known for change in compare(leaking(), before).culprits}
    assert shown[before.culprits[0].name] == FAULT
    assert [name for name, known in shown.items() if known] == [before.culprits[0].name]


def test_who_says_so_is_reported_where_it_is_a_project() -> None:
    assert "Told by culprits.toml." in render_html(report(source="culprits.toml"))
    assert "Told by" not in render_html(report())


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", 'https://x" onclick="alert(1)', "https://x/)<script>"]
)
def test_a_link_that_is_no_address_is_never_one_to_follow(link: str) -> None:
    page = render_html(report(link=link))
    (shown,) = re.findall(r'<aside class="known.*?</aside>', page, re.DOTALL)
    assert "<a " not in shown
    assert "<script>alert" not in page
    assert f"<{link}>" not in suspect_markdown(report(link=link).culprits[0])
    assert f"<{link}>" not in checked("markdown", link=link)


def test_what_nothing_is_known_of_says_nothing() -> None:
    page = render_html(leaking())
    assert 'class="known' not in page
    assert "Known" not in render_text(leaking())
