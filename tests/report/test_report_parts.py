from __future__ import annotations

import msgspec
import pytest
import report_samples as samples

from leakscope.model.comparison import ChangeKind, ValueChange
from leakscope.model.report import (
    Excerpt,
    Ledger,
    LedgerEntry,
    Line,
    PhaseSpan,
    Remedy,
    RunVerdict,
    Severity,
)
from leakscope.model.text import clipped, one_line, printable
from leakscope.report import render_html, render_text, words
from leakscope.report import text as sizes
from leakscope.report.charts import draw_series, phase_shades
from leakscope.report.comparison.page import comparison_page, value_rows
from leakscope.report.culprits import (
    Piece,
    coloured,
    diff_lines,
    excerpt_view,
    finding_views,
    first_sentences,
    pieces_of,
    remedy_view,
)
from leakscope.report.markdown import suspect_markdown
from leakscope.report.page import report_page
from leakscope.report.tables import ledger_view

MIB = 1024**2


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (298.4 * MIB, "298 MiB"),
        (-48 * MIB, "−48 MiB"),
        (5 * 1024**4, "5 TiB"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_sizes_are_short(amount, text: str) -> None:
    assert sizes.humane_bytes(amount) == text


def test_sizes_are_exact_on_demand() -> None:
    assert sizes.size_of(1_503_238_553).exact == "1,503,238,553 bytes"
    assert sizes.size_of(2 * MIB, signed=True).text == "+2 MiB"
    assert sizes.humane_interval((-2 * 1024, 1.5 * MIB)) == "0 to 1.5 MiB"
    assert sizes.humane_interval((float("-inf"), 3.0)) == "unknown"


def test_intervals_show_the_decimals_that_tell_their_ends_apart() -> None:
    assert sizes.humane_interval((291.2 * MIB, 306.4 * MIB)) == "291 to 306 MiB"
    assert sizes.humane_interval((1.52 * MIB, 1.54 * MIB)) == "1.52 to 1.54 MiB"
    assert sizes.humane_interval((1.5 * MIB, 1.5 * MIB)) == "1.5 MiB"
    assert sizes.humane_interval((-20.0 * MIB, 100.0 * MIB)) == "−20 to 100 MiB"


def test_backticks_set_code_apart() -> None:
    pieces = [(piece.text, piece.code) for piece in pieces_of("use `.item()` here")]
    assert pieces == [("use ", False), (".item()", True), (" here", False)]
    assert [piece.code for piece in pieces_of("a lone ` tick")] == [False]


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (1, "It keeps all."),
        (30, "It keeps all. See train.py:3."),
        (45, "It keeps all. See train.py:3."),
        (60, "It keeps all. See train.py:3. Use `x. Y` instead."),
        (80, "It keeps all. See train.py:3. Use `x. Y` instead. Or nothing."),
    ],
)
def test_the_first_sentences_end_where_a_sentence_does(most: int, shown: str) -> None:
    text = "It keeps all. See train.py:3. Use `x. Y` instead. Or nothing."
    assert first_sentences(text, most) == shown


ACCOUNT = "`Frames.decoded` keeps what is put into it. It is fed at a.py:19."


def test_a_remedy_in_short_begins_with_what_to_do() -> None:
    advice = "Empty it in each pass. It is fed at will."
    remedy = Remedy(title="Empty it", text=f"{ACCOUNT} {advice}", advice=advice)
    assert remedy_view(remedy).brief == [Piece(advice)]
    whole = Remedy(title="Empty it", text=advice)
    assert remedy_view(whole).brief == [Piece(advice)]


def test_next_to_a_diff_a_remedy_in_short_says_why() -> None:
    remedy = Remedy(title="Empty it", text=f"{ACCOUNT} Empty it.", advice="Empty it.", diff="+x\n")
    view = remedy_view(remedy)
    assert view.brief[0].text == "Frames.decoded"


def test_culprits_and_notes_are_counted_apart() -> None:
    leak = samples.boxes_culprit()
    note = msgspec.structs.replace(leak, severity=Severity.NOTE)
    assert words.count_words([leak, leak, note]) == "2, 1 note"
    assert words.count_words([leak]) == "1"
    assert words.count_words([note, note]) == "2 notes"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.083, "83 ms"), (1.5, "1.5 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (None, "–")],
)
def test_durations_are_short(seconds, text: str) -> None:
    assert sizes.humane_duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.724, "72 %"), (0.001, "< 1 %"), (0, "0 %"), (-0.5, "−50 %"), (None, "–"),
        (-0.003, "≈ 0 %"), (-0.9953, "< −99 %"), (-1, "−100 %"), (-0.99, "−99 %"),
    ],
)  # fmt: skip
def test_shares_are_per_cent(share, text: str) -> None:
    assert sizes.humane_share(share) == text


def test_clock_times() -> None:
    assert [sizes.clock(s) for s in (0, 65, 3725)] == ["0:00", "1:05", "1:02:05"]


def test_unseen_characters_are_spelt_out() -> None:
    assert printable("a\x1b[1m\u202eb\ud800\n\t") == "a\\x1b[1m\\u202eb\\ud800\n\t"
    assert one_line("a\r\n\tb") == "a\\r\\n\\tb"
    assert clipped("Trainer.validate.boxes", 9) == "Trai…oxes"
    assert len(clipped("x" * 50, 7)) == 7


@pytest.mark.parametrize(
    "line",
    [
        "    total += loss  # never 'detached'",
        "name = f\"{a!r}\" + 'b' if x else 0x1F",
        '"unclosed and \\" more',
        "@decorator.call(1)",
        "",
        "\t\x00 weird \u202e",
    ],
)
def test_coloured_pieces_join_to_the_line(line: str) -> None:
    assert "".join(token.text for token in coloured([line])[0]) == line


def test_strings_hide_what_looks_like_code() -> None:
    styles = {token.text: token.style for token in coloured(["x = 'for # in'  # for 'x'"])[0]}
    assert styles["'for # in'"] == "string"
    assert styles["# for 'x'"] == "comment"


def test_an_excerpt_keeps_its_line_numbers_when_outdented() -> None:
    view = excerpt_view(
        Excerpt(file="a.py", first_line=7, lines=["    a", "", "      b"], marked=[9])
    )
    assert [line.number for line in view.lines] == [7, 8, 9]
    assert [line.marked for line in view.lines] == [False, False, True]
    assert view.lines[2].tokens[0].text == "  b"
    assert view.place == "a.py:9"


def test_diff_lines_are_distinguished() -> None:
    kinds = [line.kind for line in diff_lines("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n")]
    assert kinds == ["file", "file", "hunk", "removed", "added", "same"]
    assert diff_lines(None) == []


def test_the_waterfall_ends_where_the_total_does() -> None:
    view = ledger_view(samples.leaking().ledgers[0])
    last = view.rows[-1].bar
    assert float(last.left[:-1]) + float(last.width[:-1]) == pytest.approx(100, abs=0.1)
    assert view.rows[0].bar.left == "0.00%"
    assert view.unexplained == "12 %"


def test_bars_of_a_shrinking_ledger_stay_in_the_picture() -> None:
    ledger = samples.leaking().ledgers[0]
    entries = [msgspec.structs.replace(entry, bytes=-entry.bytes) for entry in ledger.entries]
    view = ledger_view(
        msgspec.structs.replace(ledger, entries=entries, total_bytes=-ledger.total_bytes)
    )
    for bar in [*(row.bar for row in view.rows), view.total_bar]:
        assert 0 <= float(bar.left[:-1]) <= float(bar.left[:-1]) + float(bar.width[:-1]) <= 100.1
    assert view.change == "fell by"


def test_training_is_shaded_neutrally_whatever_came_before_it() -> None:
    def span(phase: str, start: float) -> PhaseSpan:
        return PhaseSpan(phase=phase, occurrence=0, epoch=0, start_s=start, end_s=start + 1)

    spans = [span(phase, float(at)) for at, phase in enumerate(("sanity check", "train", "test"))]
    assert phase_shades(spans) == {"sanity check": "phase-2", "train": "phase-1", "test": "phase-3"}
    many = phase_shades([span(f"part {number}", float(number)) for number in range(9)])
    assert "phase-1" not in many.values()


def test_a_culprit_on_another_clock_has_no_fit() -> None:
    across = samples.boxes_culprit()
    assert "var(--fit)" in draw_series(across, "a", []).svg
    other = msgspec.structs.replace(across, chart_unit="epoch")
    assert "var(--fit)" not in draw_series(other, "a", []).svg


def test_markdown_cannot_leave_its_code_spans() -> None:
    culprit = msgspec.structs.replace(
        samples.boxes_culprit(), name="a`b``c", signature="`", sentence="x\n# y"
    )
    text = suspect_markdown(culprit)
    assert "### Memory leak: ```a`b``c```" in text
    assert "x\\n# y" in text
    assert "```diff\n--- a/src" in text


def test_within_growth_is_shown_over_the_run() -> None:
    view = report_page(samples.leaking()).culprits[1]
    assert view.chart is not None
    assert view.chart.axis == "time in the run"
    assert view.share_label == "Share of the phase's height"


def test_changes_come_worst_first_and_notes_last() -> None:
    page = comparison_page(samples.comparison())
    assert [row.change for row in page.culprits] == ["reduced", "fixed", "new"]


def changed(*changes: ChangeKind, verdicts=(RunVerdict.LEAK, RunVerdict.LEAK)):
    first = samples.comparison().culprits[0]
    rows = [msgspec.structs.replace(first, change=c, severity=Severity.WARNING) for c in changes]
    return msgspec.structs.replace(
        samples.comparison(), culprits=rows, before_verdict=verdicts[0], after_verdict=verdicts[1]
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ([ChangeKind.FIXED], "Fixed"),
        ([ChangeKind.FIXED, ChangeKind.NEW], "Worse"),
        ([ChangeKind.WORSE], "Worse"),
        ([ChangeKind.UNCHANGED], "Unchanged"),
        ([ChangeKind.UNCHANGED, ChangeKind.FIXED], "Partly fixed"),
        ([ChangeKind.REDUCED], "Reduced"),
        ([], "No difference"),
    ],
)
def test_a_comparison_is_summed_up_in_a_word(changes: list[ChangeKind], word: str) -> None:
    assert words.outcome_of(changed(*changes))[1] == word


def test_of_two_runs_without_a_leak_nothing_is_left_in_question() -> None:
    clean = changed(verdicts=(RunVerdict.CLEAN, RunVerdict.CLEAN))
    assert words.outcome_of(clean) == ("clean", "No leak")


def test_an_unsettled_second_run_fixes_nothing() -> None:
    verdicts = (RunVerdict.LEAK, RunVerdict.INCONCLUSIVE)
    assert words.outcome_of(changed(ChangeKind.FIXED, verdicts=verdicts))[1] == "Not settled"


def test_a_value_that_one_run_lacks_has_no_difference() -> None:
    caches = comparison_page(samples.comparison()).components[-1]
    assert (caches.before.size.text, caches.delta.text) == ("–", "–")


def test_a_phase_in_which_a_component_was_not_measured_says_so() -> None:
    first, *others = samples.leaking().components
    within = msgspec.structs.replace(first, by_phase={"train": first.peak_bytes})
    report = msgspec.structs.replace(samples.leaking(), components=[within, *others])
    section = render_html(report).partition('id="components"')[2]
    cells = section.partition("<tbody>")[2].partition("</tr>")[0].split("<td")[3:5]
    assert sizes.humane_bytes(first.peak_bytes).replace(" ", "\N{NO-BREAK SPACE}") in cells[0]
    assert ">–</span>" in cells[1]
    assert 'class="fill none"' in cells[1]


def test_lines_that_never_leave_zero_are_left_out() -> None:
    timeline = samples.timeline(points=50)
    idle = Line(label="child processes", metric="children_pss", points=[(0.0, 0.0), (9.0, 0.0)])
    more = msgspec.structs.replace(timeline, lines=[*timeline.lines, idle])
    page = report_page(msgspec.structs.replace(samples.leaking(), timeline=more))
    assert page.timeline is not None
    assert [entry.label for entry in page.timeline.lines] == ["process (RSS)", "named containers"]
    assert len(page.data["charts"]["timeline"]["lines"]) == 2


def test_a_repeated_problem_is_reported_once() -> None:
    problem = samples.leaking().errors[0]
    page = report_page(msgspec.structs.replace(samples.leaking(), errors=[problem] * 3))
    assert [fact.value for fact in page.problems] == [f"{problem.message} (3 times)"]


def test_the_ends_of_a_narrow_interval_have_as_many_decimals() -> None:
    assert sizes.humane_interval((65.886 * 1024, 65.89 * 1024)) == "65.886 to 65.890 KiB"
    assert sizes.humane_interval((1.5 * MIB, 1.54 * MIB)) == "1.50 to 1.54 MiB"
    assert sizes.humane_interval((1.5 * MIB, 2.0 * MIB)) == "1.5 to 2 MiB"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.2, "+20 %"), (-0.86, "−86 %"), (0.004, "≈ 0 %"), (0.0, "0 %"), (None, "–")],
)
def test_changes_have_a_sign(share: float | None, text: str) -> None:
    assert sizes.signed_share(share) == text


@pytest.mark.parametrize(
    ("after", "direction"), [(101.0, ""), (99.0, ""), (120.0, "up"), (14.0, "down")]
)
def test_a_change_not_worth_a_word_raises_no_alarm(after: float, direction: str) -> None:
    change = ValueChange(name="train", device="host", before_bytes=100.0, after_bytes=after)
    assert value_rows([change])[0].direction == direction


def test_page_and_terminal_tell_alike_how_much_is_unexplained() -> None:
    entry = LedgerEntry(label="unexplained", bytes=-100 * 1024, kind="unexplained")
    named = LedgerEntry(label="x", bytes=101 * MIB, kind="named")
    ledger = Ledger(
        metric="rss", from_boundary=1, to_boundary=2, total_bytes=100 * MIB, entries=[named, entry]
    )
    assert ledger_view(ledger).unexplained == "< 1 %"
    report = msgspec.structs.replace(samples.leaking(), ledgers=[ledger])
    assert "(< 1 %)" in " ".join(render_text(report).split())


def test_a_finding_that_is_no_share_of_the_growth_is_not_reported_as_0_percent_of_it() -> None:
    slack = samples.slack_finding()
    apart = msgspec.structs.replace(slack, share=0.0, growth="constant")
    assert [view.share for view in finding_views([slack, apart])] == ["4 %", ""]
