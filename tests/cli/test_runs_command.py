"""`leakscope runs`: every run in a directory in a line, whatever state it is in."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from cli_runs import MIB, record_run, report_with
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.model.device import OutOfMemory
from leakscope.model.documents import ListedRun, LiveLeak, RunList, RunStatus
from leakscope.model.errors import NoRunError
from leakscope.model.record import EndRecord, HeaderRecord, RunManifest
from leakscope.model.report import (
    Line,
    MetricGrowth,
    Report,
    RunVerdict,
    Severity,
    Timeline,
)
from leakscope.recording import RecordingWriter, RunDirectory
from leakscope.report import render_html, render_json, render_runs_html, render_runs_text
from leakscope.report.runs import GROWTH_MEANING, bounds_by_run, growth_words
from leakscope.report.words import LEAK_RAN_OUT


def invoke(*words: object) -> Result:
    return CliRunner().invoke(leakscope, [str(word) for word in words], standalone_mode=False)


def listed(*words: object) -> RunList:
    result = invoke("runs", *words, "--format", "json")
    assert result.exception is None
    return msgspec.json.decode(result.stdout, type=RunList)


def report_of(rate: float | None, *, created: float = 0.0, peak: float = 900 * MIB) -> Report:
    report = report_with(rate)
    course = [(float(second), peak / 2 + peak / 2 * second / 9) for second in range(10)]
    return msgspec.structs.replace(
        report,
        run=msgspec.structs.replace(report.run, created=created),
        timeline=Timeline(lines=[Line(label="RSS", metric="rss", points=course)], spans=[]),
    )


def put(folder: Path, report: Report, *, page: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(render_json(report))
    if page:
        (folder / "report.html").write_text("<!doctype html>")
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A directory with a leaking run, a clean one and a folder of something else."""
    put(tmp_path / "leaking", report_of(4.0 * MIB, created=1_000_000.0, peak=900 * MIB))
    put(tmp_path / "clean", report_of(None, created=2_000_000.0, peak=500 * MIB))
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_a_run_is_reported_by_its_report(shelf: Path) -> None:
    reported = listed(shelf)
    assert [run.name for run in reported.runs] == ["clean", "leaking"]
    leaking = reported.runs[1]
    assert leaking.standing is RunStatus.REPORTED
    assert leaking.verdict == "leak"
    assert leaking.top_culprit is not None
    assert (leaking.top_culprit.name, leaking.top_culprit.unit) == ("train.history", "epoch")
    assert leaking.top_culprit.bytes_per_unit == 4 * MIB
    assert leaking.peak_bytes == 900 * MIB
    assert leaking.duration_s == 10.0
    assert leaking.course == sorted(leaking.course)
    assert reported.runs[0].top_culprit is None
    assert reported.others == ["notes"]


def in_workers(report: Report, workers: int) -> Report:
    culprits = [msgspec.structs.replace(c, workers=workers) for c in report.culprits]
    return msgspec.structs.replace(report, culprits=culprits)


@pytest.mark.parametrize(("workers", "where"), [(1, "in a worker"), (2, "in each of 2 workers")])
def test_a_rate_in_workers_is_reported_as_theirs(workers: int, where: str, tmp_path: Path) -> None:
    put(tmp_path / "fed", in_workers(report_of(4.0 * MIB), workers))
    text = f"4 MiB per epoch {where}"
    assert text in " ".join(invoke("runs", tmp_path).stdout.split())
    invoke("runs", tmp_path, "--out", tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    assert text in page.replace("\N{NO-BREAK SPACE}", " ")


def ended(report: Report, how: str) -> Report:
    return msgspec.structs.replace(report, run=msgspec.structs.replace(report.run, ending=how))


@pytest.mark.parametrize("rate", [4.0 * MIB, None])
def test_a_kill_is_reported_in_the_list(rate: float | None, tmp_path: Path) -> None:
    put(tmp_path / "killed", ended(report_of(rate), "the run was killed by SIGKILL"))
    put(tmp_path / "whole", ended(report_of(rate), ""))
    reported = "the run was killed by SIGKILL"
    assert invoke("runs", tmp_path).stdout.count(reported) == 1
    invoke("runs", tmp_path, "--out", tmp_path / "index.html")
    assert (tmp_path / "index.html").read_text().count(reported) == 1


def test_a_leak_that_ended_for_want_of_memory_is_listed_as_both(tmp_path: Path) -> None:
    shortage = OutOfMemory(device="host", cause="exception", shortage="", sentence="", evidence="")
    report = ended(report_of(4.0 * MIB), "the program ended by MemoryError")
    put(tmp_path / "full", msgspec.structs.replace(report, out_of_memory=shortage))
    (run,) = listed(tmp_path).runs
    assert run.ran_out_of_memory
    text = invoke("runs", tmp_path).stdout
    assert LEAK_RAN_OUT in text
    assert "MemoryError" not in text


def test_a_peak_is_reported_as_with_child_processes(shelf: Path) -> None:
    reported = "process and its child processes together"
    assert reported not in invoke("runs", shelf).stdout, "none of them has any"
    put(shelf / "tree", with_children(report_of(4.0 * MIB), rate=3.0 * MIB, shares=False))
    assert reported in " ".join(invoke("runs", shelf).stdout.split())
    invoke("runs", shelf, "--out", shelf / "index.html")
    assert reported in (shelf / "index.html").read_text()


def with_children(report: Report, *, rate: float, shares: bool) -> Report:
    """The same with child processes that grow from 100 to 300 MiB; 90 are shared with them."""
    assert report.timeline is not None
    (resident,) = report.timeline.lines
    children = [(4.0, 100.0 * MIB), (9.0, 300.0 * MIB)]
    lines = [resident, Line(label="children", metric="children_pss", points=children)]
    if shares:
        held = dict(resident.points)
        points = [(at, (held[at] or 0) - 90 * MIB) for at, _ in children]
        lines.append(Line(label="divided", metric="pss", points=points))
    own, tree = (
        MetricGrowth(
            metric=metric,
            unit="epoch",
            bytes_per_unit=per_epoch,
            interval=(0.0, 9.0 * MIB),
            explained_share=None,
        )
        for metric, per_epoch in (("rss", MIB), ("children_pss", rate))
    )
    return msgspec.structs.replace(
        report, growth=[own, tree], timeline=Timeline(lines=lines, spans=[])
    )


@pytest.mark.parametrize(("shares", "beyond"), [(False, 300), (True, 210)])
def test_memory_of_child_processes_counts(shares: bool, beyond: int, tmp_path: Path) -> None:
    alone = report_of(4.0 * MIB, peak=900 * MIB)
    put(tmp_path / "alone", alone)
    put(tmp_path / "tree", with_children(alone, rate=3.0 * MIB, shares=shares))
    single, tree = sorted(listed(tmp_path).runs, key=lambda run: run.name)
    assert (tree.growth_bytes_per_unit, tree.growth_unit) == (4 * MIB, "epoch")
    assert tree.peak_bytes == (900 + beyond) * MIB
    assert tree.course[:4] == single.course[:4], "there were none yet"
    assert tree.course[-1] == tree.peak_bytes


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((-28.0 * MIB, 17.0 * MIB), "up and down"),
        ((1.0 * MIB, 3.0 * MIB), "2 MiB per epoch"),
        ((0.0, 0.0), "2 MiB per epoch"),
    ],
)
def test_growth_that_may_as_well_be_none_is_not_reported_as_a_rate(
    interval: tuple[float, float], text: str, tmp_path: Path
) -> None:
    grown = MetricGrowth(
        metric="rss",
        unit="epoch",
        bytes_per_unit=2.0 * MIB,
        interval=interval,
        explained_share=None,
    )
    resting = msgspec.structs.replace(
        grown, metric="children_pss", bytes_per_unit=0.0, interval=(0.0, 0.0)
    )
    put(tmp_path / "one", msgspec.structs.replace(report_of(4.0 * MIB), growth=[grown, resting]))
    (run,) = listed(tmp_path).runs
    assert growth_words(run) == text


def test_notes_lead_no_run(tmp_path: Path) -> None:
    put(tmp_path / "one", report_with(1024.0, severity=Severity.NOTE))
    assert listed(tmp_path).runs[0].top_culprit is None


def test_the_terminal_has_a_line_for_each_and_a_sparkline(shelf: Path) -> None:
    text = invoke("runs", shelf).stdout
    assert text.startswith("2 runs: 1 leaks, 1 is clean.")
    line = next(line for line in text.splitlines() if "leaking" in line)
    assert line.startswith("Leak ")
    assert "900 MiB" in line
    assert line.endswith("▃▃▄▅▅▆▇▇██"), "of one scale with the clean run, which needs less"
    assert "train.history · 4 MiB per epoch" in text
    assert "notes holds no run." in text
    assert "\x1b" not in text


def test_runs_of_one_script_are_drawn_on_one_scale(tmp_path: Path) -> None:
    for name, peak, script in (("low", 400, "a.py"), ("high", 900, "a.py"), ("other", 9, "b.py")):
        reported = report_of(None, peak=peak * MIB)
        run = msgspec.structs.replace(reported.run, script=script)
        put(tmp_path / name, msgspec.structs.replace(reported, run=run))
    reported = {run.name: bounds for run, bounds in _bounded(listed(tmp_path))}
    begun = 1 + 1 / 9  # of half the peak, once it has started up
    assert reported["low"] == reported["high"] == pytest.approx((200 * begun * MIB, 900 * MIB))
    assert reported["other"] == pytest.approx((4.5 * begun * MIB, 9 * MIB))


def _bounded(reported: RunList) -> list[tuple[ListedRun, tuple[float, float]]]:
    return list(zip(reported.runs, bounds_by_run(reported), strict=True))


def test_forms_of_one_program_are_drawn_on_one_scale_whatever_they_are_called(
    tmp_path: Path,
) -> None:
    for name, peak in (("train.py", 900), ("train_fixed.py", 400)):
        report = report_of(None, peak=peak * MIB)
        run = msgspec.structs.replace(report.run, script=name)
        put(tmp_path / name, msgspec.structs.replace(report, run=run))
    alike = msgspec.structs.replace(listed(tmp_path), are_alike=True)
    first, second = bounds_by_run(alike)
    assert first == second
    assert first[1] == 900 * MIB


def test_one_run_broken_off_early_does_not_flatten_the_others(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"run{number}", report_of(None, peak=900 * MIB))
    report = report_of(None)
    course = [(0.0, 30.0 * MIB), (1.0, 40.0 * MIB), (2.0, 500.0 * MIB)]
    line = Line(label="RSS", metric="rss", points=course)
    put(
        tmp_path / "early",
        msgspec.structs.replace(report, timeline=Timeline(lines=[line], spans=[])),
    )
    assert {low for low, _ in bounds_by_run(listed(tmp_path))} == {500 * MIB}
    page = tmp_path / "index.html"
    invoke("runs", tmp_path, "--out", page)
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", page.read_text())]
    assert max(heights) <= 26.0


def test_the_first_culprits_own_rate_is_whole_on_a_narrow_terminal(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "  train.history · 4 MiB per epoch\n" in invoke("runs", shelf).stdout


def test_runs_in_folders_of_the_directory_are_listed_too(shelf: Path) -> None:
    put(shelf / "sweep" / "lr" / "seed0", report_of(None, created=3_000_000.0))
    (shelf / "data" / "train" / "cats").mkdir(parents=True)
    reported = listed(shelf)
    assert [run.name for run in reported.runs] == ["sweep/lr/seed0", "clean", "leaking"]
    assert reported.others == ["data", "notes"]
    page = shelf / "index.html"
    invoke("runs", shelf, "--out", page)
    assert 'href="sweep/lr/seed0/report.html"' in page.read_text()


def test_a_dataset_next_to_runs_is_not_searched(shelf: Path) -> None:
    for number in range(1001):
        (shelf / "data" / f"{number}").mkdir(parents=True)
    put(shelf / "data" / "0" / "run", report_of(None))
    assert len(listed(shelf).runs) == 2


def compared(out: Path, before: Path, after: Path) -> None:
    words = ["compare", before / "report.json", after / "report.json", "--out", out]
    assert invoke(*words).exception is None


def test_comparisons_next_to_the_runs_are_linked(shelf: Path) -> None:
    compared(shelf / "fixed.html", shelf / "leaking", shelf / "clean")
    (shelf / "index.html").write_text(invoke("runs", shelf, "--format", "html").stdout)
    (shelf / "mine.html").write_text('<meta name="leakscope-comparison" content="a">')
    (link,) = listed(shelf).links
    assert link.page == str(shelf / "fixed.html")
    assert link.label == "runs/one → runs/one, compared"
    assert link.sentence.startswith("Fixed · train.history no longer grows")
    page = shelf / "all.html"
    invoke("runs", shelf, "--out", page)
    assert '<a href="fixed.html">runs/one → runs/one, compared</a>' in page.read_text()
    text = invoke("runs", shelf).stdout
    assert "runs/one → runs/one, compared: Fixed · train.history no longer grows" in text
    assert "\n  fixed.html\n" in text


@pytest.mark.parametrize(
    "page",
    [
        b"<![foo", b"\xff\xfe" * 5000, b"", b"<meta name='generator' content='leakscope'>",
        b"<meta name=generator content=leakscope><meta name=leakscope-comparison>",
    ],
)  # fmt: skip
def test_pages_that_are_no_comparisons_are_not_linked(page: bytes, shelf: Path) -> None:
    (shelf / "page.html").write_bytes(page)
    (shelf / "folder.html").mkdir()
    assert listed(shelf).links == []


def test_a_comparison_page_cannot_smuggle_anything_into_the_list(shelf: Path) -> None:
    printed = 'content="&lt;img src=x onerror=alert(1)&gt;\x1b[31m"'
    (shelf / "javascript:alert(1).html").write_text(
        f'<meta name="generator" content="leakscope"><meta name="leakscope-comparison" {printed}>'
        f'<meta name="description" {printed}>'
    )
    assert len(listed(shelf).links) == 1
    assert "\x1b" not in invoke("runs", shelf).stdout
    page = shelf / "index.html"
    invoke("runs", shelf, "--out", page)
    text = page.read_text()
    assert "<img" not in text
    assert 'href="javascript%3Aalert%281%29.html"' in text


def test_of_very_many_comparisons_the_newest_are_linked(shelf: Path) -> None:
    compared(shelf / "0.html", shelf / "leaking", shelf / "clean")
    for number in range(1, 25):
        page = shelf / f"{number}.html"
        page.write_bytes((shelf / "0.html").read_bytes())
        os.utime(page, (2e9 + number, 2e9 + number))
    pages = [Path(link.page).name for link in listed(shelf).links]
    assert pages == [f"{number}.html" for number in range(24, 4, -1)]
    text = invoke("runs", shelf).stdout
    assert "\n  20.html\n" in text
    assert "19.html" not in text
    assert "\nand 15 more comparisons\n" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    width: int, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf / ("long-" * 20), report_of(1.0 * MIB))
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, invoke("runs", shelf).stdout.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 120])
def test_a_narrow_terminal_has_fewer_columns_and_each_of_them_whole(
    width: int, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf / "many_fixed_runs_of_a_night", report_of(1.0 * MIB, created=3_000_000.0))
    monkeypatch.setenv("COLUMNS", str(width))
    headings, *lines = invoke("runs", shelf).stdout.splitlines()[2:]
    line = next(line for line in lines if "any_" in line)
    reported = re.split(r"  +", line)
    assert len(reported) == len(re.split(r"  +", headings))
    assert "900 MiB" in reported, "the peak is never left out"
    dated = any(re.fullmatch(r"(\d{4}-)?\d\d-\d\d \d\d:\d\d", part) for part in reported)
    assert dated == ("when (UTC)" in headings)
    name = reported[1]
    assert len(name) >= min(len("many_fixed_runs_of_a_night"), 20) or width < 50
    assert all("\N{HORIZONTAL ELLIPSIS}" not in part for part in [reported[0], *reported[2:]])


@pytest.mark.parametrize(
    ("order", "first"),
    [("newest", "clean"), ("name", "clean"), ("verdict", "leaking"), ("peak", "leaking")],
)
def test_runs_come_in_the_order_requested(order: str, first: str, shelf: Path) -> None:
    assert listed(shelf, "--sort", order).runs[0].name == first


def test_the_page_links_the_reports_from_where_it_lies(shelf: Path) -> None:
    for out in (shelf / "index.html", shelf / "notes" / "all.html"):
        result = invoke("runs", shelf, "--out", out)
        assert result.exception is None
        assert f"list in {out}" in result.stdout
        links = re.findall(r'href="([^"#]*report\.html)"', out.read_text())
        assert [(out.parent / unquote(link)).resolve() for link in links] == [
            (shelf / name / "report.html").resolve() for name in ("clean", "leaking")
        ]


def test_a_run_without_a_report_says_how_to_make_one(shelf: Path) -> None:
    record_run(shelf / "bare")
    run = next(run for run in listed(shelf).runs if run.name == "bare")
    assert run.standing is RunStatus.UNREPORTED
    assert f"leakscope report {shelf / 'bare'}" in run.remark
    assert run.script == "train.py"


def open_recording(folder: Path, **header: object) -> RecordingWriter:
    RunDirectory.create(folder, RunManifest(script="train.py", created=time.time()))
    known = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    return RecordingWriter(folder, HeaderRecord(**{**known, **header}))  # type: ignore[arg-type]


def test_a_run_in_progress_is_still_running(tmp_path: Path) -> None:
    writer = open_recording(tmp_path / "now")
    run = listed(tmp_path).runs[0]
    assert run.standing is RunStatus.RUNNING
    assert "leakscope show" in run.remark
    writer.write(EndRecord(status="completed"))
    assert listed(tmp_path).runs[0].standing is RunStatus.UNREPORTED
    writer.close()


def test_a_run_in_progress_is_listed_with_what_leaks_in_it(tmp_path: Path) -> None:
    writer = open_recording(tmp_path / "now")
    noted = LiveLeak(
        headline="Memory leaks: replies grows by 111 MiB per minute (serve.py:5).",
        when="since 14:05, full in 9 hours",
        name="replies",
        place="serve.py:5",
        signature="abc",
        bytes_per_unit=111 * 1024.0**2,
        unit="minute",
        judged_at=time.time(),
    )
    RunDirectory(tmp_path / "now").write_live(noted)
    found = listed(tmp_path)
    (run,) = found.runs
    assert (run.standing, run.verdict) == (RunStatus.RUNNING, RunVerdict.LEAK)
    text = render_runs_text(found)
    assert "replies · 111 MiB per minute · still running, since 14:05, full in 9 hours" in text
    assert "still running, since 14:05" in render_runs_html([found], folder=tmp_path)
    RunDirectory(tmp_path / "now").write_live(None)
    assert listed(tmp_path).runs[0].verdict is None
    writer.close()


def test_a_report_made_in_between_does_not_end_a_run(tmp_path: Path) -> None:
    writer = open_recording(tmp_path / "now")
    report = tmp_path / "now" / "report.json"
    report.write_text(render_json(report_of(None)))
    os.utime(report, (time.time() - 60, time.time() - 60))
    assert listed(tmp_path).runs[0].standing is RunStatus.RUNNING
    writer.close()
    os.utime(report, (time.time() + 60, time.time() + 60))
    assert listed(tmp_path).runs[0].standing is RunStatus.REPORTED


def test_of_another_machine_it_is_reported_that_it_may_still_run(tmp_path: Path) -> None:
    open_recording(tmp_path / "far", host="another-machine").close()
    run = listed(tmp_path).runs[0]
    assert run.standing is RunStatus.UNREPORTED
    assert "may still be running on another machine" in run.remark


DAMAGED = {
    "empty": b"",
    "cut off": b'{"schema_version": 1, "verdict": "le',
    "no report": b'{"schema_version": 1}',
    "another document": b"[1, 2, 3]",
    "noise": bytes(range(256)) * 40,
    "deep": b'{"schema_version":1,"x":' + b"[" * 100_000,
    "other types": b'{"schema_version": 1, "verdict": 7, "headline": {}, "run": [], "work": 0}',
    "another verdict": b'{"schema_version":1,"verdict":"fine","headline":"","run":{},"work":{}}',
}


@pytest.mark.parametrize("form", ["text", "html", "json"])
@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_report_is_reported_as_such(damage: bytes, form: str, shelf: Path) -> None:
    record_run(shelf / "damaged")
    (shelf / "damaged" / "report.json").write_bytes(damage)
    result = invoke("runs", shelf, "--format", form)
    assert result.exception is None
    assert "report.json is damaged" in result.stdout
    run = next(run for run in listed(shelf).runs if run.name == "damaged")
    assert run.standing is RunStatus.UNREADABLE
    assert f"leakscope report {shelf / 'damaged'}" in run.remark


def test_a_report_of_a_newer_leakscope_is_distinguished_from_damage(shelf: Path) -> None:
    newer = json.dumps({"schema_version": 99})
    (shelf / "notes" / "report.json").write_text(newer)
    run = next(run for run in listed(shelf).runs if run.name == "notes")
    assert "newer leakscope" in run.remark


@pytest.mark.parametrize("amount", ["1e999", "-1e308", "1e308", "null"])
def test_figures_that_mean_nothing_are_harmless(amount: str, shelf: Path) -> None:
    path = shelf / "leaking" / "report.json"
    text = re.sub(
        r'("(?:created|duration_s|bytes_per_unit)":) [^,\n]+', rf"\1 {amount}", path.read_text()
    )
    path.write_text(text.replace("943718400.0", amount))
    for form in ("text", "html", "json"):
        result = invoke("runs", shelf, "--format", form)
        assert result.exception is None
        assert "nan" not in re.sub(r"<style>.*?</script>", "", result.stdout, flags=re.S).lower()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_reported(shelf: Path) -> None:
    (shelf / "clean").chmod(0)
    try:
        assert "can't be read" in invoke("runs", shelf).stdout
    finally:
        (shelf / "clean").chmod(0o755)


@pytest.mark.parametrize("what", ["missing", "file", "run"])
def test_what_is_no_directory_of_runs_is_explained(what: str, tmp_path: Path) -> None:
    place = tmp_path / what
    if what == "file":
        place.write_text("")
    elif what == "run":
        record_run(place)
    result = invoke("runs", place)
    assert isinstance(result.exception, NoRunError)
    assert str(place) in str(result.exception)


def test_a_directory_without_runs_is_no_fault(tmp_path: Path) -> None:
    result = invoke("runs", tmp_path)
    assert result.exception is None
    assert result.stdout.strip() == "There is no run yet."


def test_before_the_first_run_there_is_none_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("runs")
    assert result.exception is None
    assert result.stdout.strip() == "There is no run yet."
    assert isinstance(invoke("runs", "leakscope-runs").exception, NoRunError)


@pytest.mark.parametrize("content", [b"", b"\xff" * 5000, None], ids=["empty", "noise", "gone"])
def test_what_no_report_can_be_made_of_is_not_sent_there(
    content: bytes | None, tmp_path: Path
) -> None:
    run = record_run(tmp_path / "shelf" / "one")
    for journal in run.glob("*.journal"):
        journal.unlink() if content is None else journal.write_bytes(content)
    (only,) = listed(tmp_path / "shelf").runs
    assert only.remark == "Nothing in it can be read: record again."
    assert isinstance(invoke("report", run).exception, NoRunError)


def test_without_a_name_the_usual_directory_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "leakscope-runs" / "one", report_of(None))
    monkeypatch.chdir(tmp_path)
    assert [run.name for run in listed().runs] == ["one"]
    put(tmp_path / "elsewhere" / "two", report_of(None))
    (tmp_path / "pyproject.toml").write_text('[tool.leakscope]\nruns = "elsewhere"\n')
    assert [run.name for run in listed().runs] == ["two"]


NAMES = (
    "javascript:alert(1)",
    "<b>&\"'",
    "\x1b[31mred",
    "a\nb",
    "\u202egnp",
    "%2e%2e",
    "half\udc80",
)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_of_folders_are_harmless(name: str, tmp_path: Path) -> None:
    put(tmp_path / name, report_of(1.0 * MIB))
    text = invoke("runs", tmp_path).stdout
    assert len(text.splitlines()) == 5
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
    page = invoke("runs", tmp_path, "--out", tmp_path / "index.html")
    assert page.exception is None
    html = (tmp_path / "index.html").read_text()
    assert "<b>" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)
    (link,) = re.findall(r'href="([^"]*report\.html)"', html)
    assert ":" not in link
    target = tmp_path / os.fsdecode(
        unquote(link, errors="surrogateescape").encode("utf-8", "surrogateescape")
    )
    assert target.exists()


def test_a_page_of_runs_says_the_same_with_the_real_reports(tmp_path: Path) -> None:
    report = report_of(4.0 * MIB)
    folder = put(tmp_path / "one", report)
    (folder / "report.html").write_text(render_html(report))
    page = invoke("runs", tmp_path, "--format", "html").stdout
    assert "train.history" in page.replace("<wbr>", "")
    assert f'title="{GROWTH_MEANING}">Growth in all</abbr>' in page.replace("&#39;", "'")
    assert 'class="spark"' in page


def run_at(day: int, rate: float | None, commit: str = "") -> Report:
    report = report_of(rate, created=86_400.0 * day)
    facts = msgspec.structs.replace(report.run, environment={"commit": commit} if commit else {})
    return msgspec.structs.replace(report, run=facts)


def history(folder: Path, *rates: float | None) -> list[str]:
    """Put a run a day below a folder, and return what their list says became of the culprit."""
    for day, rate in enumerate(rates, 1):
        put(folder / f"run{day}", run_at(day, rate, f"c0ffee{day}"))
    return [item.sentence for item in listed(folder).histories]


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((4.0, 4.1, 4.0), "It grows in all of them, by 4 MiB per"),
        ((4.0, 6.0, 8.0), "It grows in all of them: by 4 MiB per"),
        ((4.0, 4.0, None), "It no longer grows since run3 (commit c0ffee3)."),
        ((4.0, None, None, None), "It no longer grows since run2 (commit c0ffee2)."),
        ((None, None, 4.0, 4.0), "It grows since run3 (commit c0ffee3), by 4 MiB per"),
        ((4.0, None, 4.0), "It grows since run3 (commit c0ffee3), by 4 MiB per"),
    ],
)
def test_runs_of_one_script_tell_what_became_of_its_first_culprit(
    rates: tuple[float | None, ...], text: str, tmp_path: Path
) -> None:
    (sentence,) = history(tmp_path, *(rate and rate * MIB for rate in rates))
    assert sentence.startswith(text)


@pytest.mark.parametrize("rates", [(4.0, 4.0), (None, None, None)], ids=["two runs", "clean runs"])
def test_there_is_no_history_of_little_or_of_nothing(
    rates: tuple[float | None, ...], tmp_path: Path
) -> None:
    assert history(tmp_path, *(rate and rate * MIB for rate in rates)) == []


def test_runs_of_different_scripts_have_no_history_in_common(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        report = run_at(day, 4.0 * MIB)
        facts = msgspec.structs.replace(report.run, script=f"train{day}.py")
        put(tmp_path / f"run{day}", msgspec.structs.replace(report, run=facts))
    assert listed(tmp_path).histories == []


def test_a_run_that_cannot_tell_is_no_end_of_a_leak(tmp_path: Path) -> None:
    put(tmp_path / "run3", inconclusive(run_at(3, None)))
    (sentence,) = history(tmp_path, 4.0 * MIB, 4.0 * MIB)
    assert sentence.startswith("It grows in all of them, by 4 MiB per")
    (reported,) = listed(tmp_path).histories
    assert [step.bytes_per_unit is None for step in reported.steps] == [False, False, True]


def inconclusive(report: Report) -> Report:
    return msgspec.structs.replace(report, verdict=RunVerdict.INCONCLUSIVE)


def test_a_history_stands_in_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    history(tmp_path, 4.0 * MIB, 8.0 * MIB, None)
    text = invoke("runs", tmp_path).stdout
    assert "its last 3 runs" in text
    assert "▅█▁" in text
    assert "It no longer grows since run3 (commit c0ffee3)." in text
    page = invoke("runs", tmp_path, "--format", "html").stdout
    assert "from run to run" in page
    assert "<code>c0ffee2</code>" in page
    assert 'style="left:0%;width:50.00%"' in page
    assert "doesn't grow" in page.replace("&#39;", "'")
