from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
import time

import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested
from page_reader import Seen, read_page

from leakscope.model.report import Excerpt, Line, PhaseSpan, Point, Remedy, Timeline
from leakscope.report import render_comparison_html, render_html
from leakscope.report.html import TEMPLATES, embed_json

SAMPLES = {
    "leaking": samples.leaking,
    "clean": samples.clean,
    "inconclusive": samples.inconclusive,
    "out of memory": samples.out_of_memory,
    "cures tried": samples.cures_tried,
    "on a device": samples.on_device,
    "empty": samples.empty,
}
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def all_pages() -> dict[str, str]:
    pages = {name: render_html(make()) for name, make in SAMPLES.items()}
    return {**pages, "comparison": render_comparison_html(samples.comparison())}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


@pytest.fixture(scope="module")
def known(pages: dict[str, str]) -> Seen:
    """Every element and attribute that harmless pages have."""
    seen = Seen()
    for page in pages.values():
        item = read_page(page)
        seen.tags |= item.tags
        seen.attributes |= item.attributes
    return seen


def assert_harmless(page: str, known: Seen) -> None:
    seen = read_page(page)
    assert seen.unclosed == []
    assert seen.tags <= known.tags
    assert seen.attributes <= known.attributes
    assert len(seen.scripts) == 2
    assert all(link.startswith("#") or link == "data:," for link in seen.links)
    assert len(seen.ids) == len(set(seen.ids))
    json.loads(seen.scripts[0][1])
    assert not UNSEEN.search(page)
    page.encode("utf-8")


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_of_the_program_breaks_out_of_the_report(attack: str, known: Seen) -> None:
    report = msgspec.structs.replace(samples.on_device(), timeline=samples.timeline(points=40))
    assert_harmless(render_html(infested(report, attack)), known)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_of_the_program_breaks_out_of_the_comparison(attack: str, known: Seen) -> None:
    small = samples.timeline(points=40)
    comparison = msgspec.structs.replace(
        samples.comparison(), before_timeline=small, after_timeline=small
    )
    assert_harmless(render_comparison_html(infested(comparison, attack)), known)


def test_known_elements_leave_no_room_for_active_content(known: Seen) -> None:
    assert not known.tags & {"img", "iframe", "object", "embed", "form", "base", "foreignobject"}
    assert not [name for name in known.attributes if name.startswith("on")]


def test_a_hostile_name_is_still_readable() -> None:
    report = infested(samples.leaking(), "<b>\x1b[31m")
    assert "Trainer.all_pred_boxes<b>\\x1b[31m" in read_page(render_html(report)).text


def test_embedded_data_cannot_end_its_element() -> None:
    text = str(embed_json({"</SCRIPT>": "a\u2028b & 'c' \ud800"}))
    assert not re.search("[<>&'\u2028\ud800]", text)
    assert json.loads(text) == {"</SCRIPT>": "a\\u2028b & 'c' \\ud800"}


def test_the_policy_admits_the_one_script_and_nothing_else(pages: dict[str, str]) -> None:
    for page in pages.values():
        seen = read_page(page)
        (data, _), (attributes, script) = seen.scripts
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert data["type"] == "application/json"
        assert attributes == {}
        assert "default-src 'none'" in seen.policy
        assert f"script-src 'sha256-{digest}';" in seen.policy


def test_nothing_is_loaded_from_anywhere(pages: dict[str, str]) -> None:
    for page in pages.values():
        assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)|\bsrc=", page.replace("///", ""))


def test_every_link_and_label_leads_somewhere(pages: dict[str, str]) -> None:
    for page in pages.values():
        seen = read_page(page)
        targets = {link[1:] for link in seen.links if link.startswith("#")}
        assert targets | set(seen.labelled_by) <= set(seen.ids)


def test_equal_reports_give_equal_pages_in_other_processes(pages: dict[str, str]) -> None:
    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); import report_samples as s;"
        "from leakscope.report import render_html;"
        "print(hashlib.sha256(render_html(s.leaking()).encode()).hexdigest())"
    )
    folder = str(TEMPLATES.parents[2] / "tests" / "report")
    run = subprocess.run(
        [sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        check=True,
        cwd=TEMPLATES.parents[2],
    )
    assert run.stdout.strip() == hashlib.sha256(pages["leaking"].encode()).hexdigest()


def test_a_long_timeline_stays_small_and_quick() -> None:
    report = samples.leaking()
    render_html(report)
    begin = time.process_time()
    page = render_html(report)
    assert time.process_time() - begin < 2.0
    assert len(page.encode()) < 1_500_000


def test_the_first_screen_answers(pages: dict[str, str]) -> None:
    text = read_page(pages["leaking"]).text
    hero = text[: text.index("Ranked by the growth")]
    for answer in (
        "Leak",
        "Trainer.all_pred_boxes grows by 298 MiB in every validation",
        "src/training/trainer.py:600",
        "298 MiB per validation",
        "reaches 64.0 GiB in epoch 159 of 200",
        "Keep the boxes local to one validation",
        "all_pred_boxes.extend(self.predict(batch))",
    ):
        assert answer in hero


def test_no_line_ends_between_a_number_and_its_unit(pages: dict[str, str]) -> None:
    shown = re.sub(r"<(script|style|code|svg).*?</\1>|<[^>]+>", "", pages["leaking"], flags=re.S)
    assert "298\N{NO-BREAK SPACE}MiB per validation" in shown
    assert not re.search(r"\d (?:[KMG]i)?B\b|\d %", shown)


def test_code_is_copied_from_the_page_as_it_was_written() -> None:
    line = "kept[step % 5 % 3] = x  # 5 B each"
    shown = Excerpt(file="a.py", first_line=1, lines=[line], marked=[1])
    culprit = msgspec.structs.replace(samples.boxes_culprit(), excerpts=[shown])
    report = msgspec.structs.replace(samples.leaking(), culprits=[culprit])
    page = re.sub(r"<script.*?</script>|<[^>]+>", "", render_html(report), flags=re.S)
    assert line in page


def test_a_clean_run_says_so_and_accuses_nobody(pages: dict[str, str]) -> None:
    text = read_page(pages["clean"]).text
    assert "No leak" in text
    assert "Change this" not in text
    assert "bounded: 500 entries since epoch 2" in text


def test_a_timeline_that_shades_only_some_phases_says_so() -> None:
    timeline = samples.timeline(points=40)
    shaded = len(timeline.spans)
    cut = msgspec.structs.replace(timeline, phases_begun=1234)
    sentence = f"Shaded are {shaded} of 1,234 phases, evenly over the run."
    assert sentence in render_html(msgspec.structs.replace(samples.clean(), timeline=cut))
    assert "phases." not in render_html(msgspec.structs.replace(samples.clean(), timeline=timeline))


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("k", "Memory leaks: @ grows by 2 KiB per step."),
        ("leaks", "Memory leaks: @ grows by 2 KiB per step; it reaches k."),
        ("step", "Memory peaks in step: @ climbs by 2 KiB per step to 9 MiB."),
        ("heap", "Memory leaks: @ grows by 2 KiB per step. Also: heap has holes."),
        ("a.b", "Killed beside x.a.b and a.b.c. Memory leaks: @ grows."),
        ("kept", "Most was held by @."),
        ("</code>: <b", "Memory leaks: @ grows by 2 KiB per step."),
        ("*[", "Memory leaks: @ grows by 2 KiB per step."),
        ("absent", "Memory grows and nobody is named."),
    ],
)
def test_the_headline_marks_the_culprit_and_no_part_of_a_word(name: str, headline: str) -> None:
    culprit = msgspec.structs.replace(samples.boxes_culprit(), name=name)
    text = headline.replace("@", name)
    report = msgspec.structs.replace(samples.leaking(), culprits=[culprit], headline=text)
    page = render_html(report)
    assert read_page(page).unclosed == []
    title = page[page.index('<h1 id="headline">') : page.index("</h1>")]
    marked = re.sub(r"<a [^>]*><code>.*?</code></a>", "@", title.partition(">")[2])
    shown = html.unescape(marked).replace("\N{NO-BREAK SPACE}", " ")
    assert re.sub(r"<wbr>", "", shown) == headline
    assert title.count("<code>") == headline.count("@")


def test_notes_alone_leave_the_first_screen_to_what_was_checked() -> None:
    note = samples.loss_culprit()
    page = render_html(msgspec.structs.replace(samples.clean(), culprits=[note]))
    text = read_page(page).text
    hero = text[: text.index("Ranked by the growth")]
    assert "What was checked" in hero
    assert "Add up numbers, not tensors" not in hero


def test_a_grave_finding_leads_where_culprits_are_only_notes() -> None:
    finding = msgspec.structs.replace(
        samples.slack_finding(), severity=samples.Severity.WARNING, title="Slack piles up"
    )
    report = msgspec.structs.replace(
        samples.leaking(), culprits=[samples.loss_culprit()], findings=[finding]
    )
    text = read_page(render_html(report)).text
    assert "Limit the arenas" in text[: text.index("Ranked by the growth")]


def test_an_inconclusive_run_says_what_would_settle_it(pages: dict[str, str]) -> None:
    text = read_page(pages["inconclusive"]).text
    assert "Not enough evidence" in text
    assert "Two more epochs: four comparable boundaries" in text


def test_what_would_settle_a_run_is_not_reported_twice_on_its_page() -> None:
    report, wanted = samples.inconclusive(), "Only 1 boundary: profile at least 5 epochs."
    reported = msgspec.structs.replace(
        report, headline=f"Inconclusive after 1 s. {wanted}", missing=[wanted]
    )
    text = read_page(render_html(reported)).text
    assert text.count(wanted) == 1
    assert "What would settle it" not in text
    assert "What was checked" in text
    nothing = msgspec.structs.replace(reported, growth=[], cleared=[])
    assert "What was checked" not in read_page(render_html(nothing)).text
    more = msgspec.structs.replace(reported, missing=[wanted, "A full census."])
    text = read_page(render_html(more)).text
    assert text.count(wanted) == 1
    assert text.count("A full census.") == 1


def test_honesty_is_on_the_page(pages: dict[str, str]) -> None:
    text = read_page(pages["leaking"]).text
    for fact in ("291 to 306 MiB", "it grew through 14 readings", "unexplained", "1.4 %", "83 ms"):
        assert fact in text
    assert "smaps_rollup could not be read" in text
    assert "gc.collect() freed 0 B of it" in text


ODD_TIMELINES = {
    "no lines": Timeline(lines=[], spans=[]),
    "no points": Timeline(lines=[Line(label="a", metric="rss", points=[])], spans=[]),
    "one point": Timeline(lines=[Line(label="a", metric="rss", points=[(1.0, 5.0)])], spans=[]),
    "all zero": Timeline(
        lines=[Line(label="a", metric="rss", points=[(0.0, 0.0), (1.0, 0.0)])], spans=[]
    ),
    "not a number": Timeline(
        lines=[Line(label="a", metric="rss", points=[(0.0, float("nan")), (1.0, float("inf"))])],
        spans=[],
        censuses_s=[float("nan")],
        limit_bytes=0,
    ),
    "a span without length": Timeline(
        lines=[Line(label="a", metric="rss", points=[(0.0, 1e9), (1.0, 2e9)])],
        spans=[PhaseSpan(phase="", occurrence=0, epoch=0, start_s=0.5, end_s=0.5)],
        limit_bytes=2_100_000_000,
    ),
}


@pytest.mark.parametrize("timeline", ODD_TIMELINES.values(), ids=ODD_TIMELINES)
def test_odd_timelines_are_drawn_or_left_out(timeline: Timeline) -> None:
    page = render_html(msgspec.structs.replace(samples.clean(), timeline=timeline))
    assert read_page(page).unclosed == []
    assert "nan" not in page.lower().replace("nano", "").replace("finance", "")


def test_a_culprit_with_nothing_known_is_shown() -> None:
    bare = msgspec.structs.replace(
        samples.boxes_culprit(),
        fed_at=[],
        defined_at=None,
        allocated_at=[],
        holds=[],
        excerpts=[],
        held_by=[],
        chart=[Point(0.0, float("nan"), 0)],
        forecast=None,
        falsifier=None,
        items_per_unit=None,
        interval=(float("-inf"), float("inf")),
        remedy=Remedy(title="", text=""),
        signature="a b/<>",
    )
    page = render_html(msgspec.structs.replace(samples.leaking(), culprits=[bare, bare]))
    assert_unique = read_page(page).ids
    assert len(assert_unique) == len(set(assert_unique))


def test_templates_only_place_what_was_computed() -> None:
    for template in TEMPLATES.glob("*.j2"):
        for expression in re.findall(r"\{[{%](.*?)[%}]\}", template.read_text(), re.DOTALL):
            code = re.sub(r"\"[^\"]*\"", "", expression).strip("-")
            assert not re.search(r"[+*/]|//|\s-\s|\|\s*(round|sum|safe|int|float)", code), (
                expression
            )


def test_out_of_memory_shows_what_was_live_and_what_would_have_fitted() -> None:
    page = render_html(samples.out_of_memory())
    text = read_page(page).text
    for reported in ("Why memory ran out", "Trainer.crops", "41 GiB", "activations and graphs"):
        assert reported in text
    assert "would have helped" in text
    assert "would not help" in text
    assert "Why memory ran out" not in read_page(render_html(samples.leaking())).text


def test_cures_that_were_tried_have_a_section() -> None:
    text = read_page(render_html(samples.cures_tried())).text
    assert "Which cleaning calls can help" in text
    for reported in ("after train: it helps", "it cannot help", "210 MiB", "41 ms", "not glibc"):
        assert reported in text
    assert "Which cleaning calls" not in read_page(render_html(samples.leaking())).text


def test_the_memory_of_a_device_is_shown_with_its_map_and_who_holds_it() -> None:
    page = render_html(samples.on_device())
    section = page[page.index('id="devices"') : page.index('id="phases"')]
    assert "after step 40 of train" in section
    assert section.count('class="drawing map"') == 2
    assert "var(--map-gathered)" in section
    assert "<code>Trainer.history[*]</code>" in section
    assert "allocated at" in section
    assert "(freed, still waited for)" in section
    assert "Smaller holders" in section
    assert "expandable_segments:True" in section
    assert "3 blocks were too many" in section


def test_a_run_without_a_device_has_no_such_section(pages: dict[str, str]) -> None:
    assert 'id="devices"' not in pages["leaking"]
