"""Recordings made to do harm: read within bounds, nothing executed, opened or followed."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import fault_runs
import pytest
from hostile_runs import END, MANIFEST, boundary, census, row, write_run

from leakscope.analysis import analyse
from leakscope.model.errors import LeakscopeError, NewerSchemaError
from leakscope.model.report import Report
from leakscope.recording import open_run
from leakscope.recording.format import HEADER, MAGIC, MAX_PAYLOAD, PLAIN, to_frame
from leakscope.report import render_html, render_json, render_summary, render_text

STEPS = [boundary(index) for index in range(8)]
NUMBERS = [(1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64, 10**30, 10**320, -(10**320)]


def reported(folder: Path, *, draws: bool = True) -> Report:
    """Return the report after every renderer has shown it; drawing charts takes the longest."""
    report = analyse(open_run(folder))
    if draws:
        render_html(report)
    render_text(report)
    json.loads(render_json(report))
    render_summary(report, report_path="report.html")
    return report


def looked_at(**fields: Any) -> list[dict[str, Any]]:
    rows = (row(**{"host_bytes": 10**6 * index, **fields}) for index in range(8))
    return [one for index, r in enumerate(rows) for one in (census(index, r), boundary(index))]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{n:.3g}" if abs(n) < 10**40 else "huge")
@pytest.mark.parametrize(
    "field", ["index", "occurrence", "epoch", "step", "batch", "expected_batches"]
)
def test_a_place_beyond_all_reason_costs_its_record(
    field: str, number: int, tmp_path: Path
) -> None:
    one = write_run(tmp_path / "one", *STEPS, boundary(8, **{field: number}))
    every = write_run(tmp_path / "every", *(boundary(i, **{field: number}) for i in range(8)), END)
    assert len(reported(one, draws=number == NUMBERS[0]).errors) == (abs(number) > (1 << 63) - 1)
    assert len(reported(every, draws=number == NUMBERS[0]).errors) == (
        8 if abs(number) > (1 << 63) - 1 else 0
    )


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{n:.3g}" if abs(n) < 10**40 else "huge")
def test_sizes_beyond_all_reason_are_reported_or_refused(number: int, tmp_path: Path) -> None:
    runs = {
        "gauge": [boundary(i, {"rss": number, "cuda:0.allocated": number}) for i in range(8)],
        "device": looked_at(device_bytes={"cuda:0": number}, shared_bytes={"host": number}),
    }
    for field in ("host_bytes", "length", "count", "capacity", "graph_nodes", "exclusive_bytes"):
        runs[field] = looked_at(**{field: number})
    totals = {"objects": number, "heap_bytes": number, "garbage_bytes": number}
    kept = {"components": {"parameters": {"host": number}}, "payload_bytes": {"host": number}}
    runs["census"] = [
        one for i in range(8) for one in (census(i, row(), **totals, **kept), boundary(i))
    ]
    for name, records in runs.items():
        report = reported(write_run(tmp_path / name, *records, END))
        assert bool(report.errors) == (abs(number) > (1 << 63) - 1), name


@pytest.mark.parametrize("seconds", [1e308, -1e308, 1e-320, 1e12, -1e12])
def test_times_beyond_all_reason_are_reported_or_refused(seconds: float, tmp_path: Path) -> None:
    times = [boundary(i, time_s=seconds * (i % 2 * 2 - 1)) for i in range(8)]
    reported(write_run(tmp_path / "times", *times, {**END, "time_s": seconds}))
    manifest = {"format": "leakscope-run", "created": seconds, "memory_limit": 3}
    reported(write_run(tmp_path / "manifest", *STEPS, manifest=json.dumps(manifest).encode()))


@pytest.mark.parametrize(
    "outcome",
    [
        {"signal": 10**30}, {"signal": -1}, {"signal": "<b>"}, {"exit_code": 10**320},
        {"oom_killed": "yes"}, {"oom_kills": -5, "signal": 9}, {"signal": 9, "limit_hits": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_outcome_that_no_supervisor_wrote_is_reported_or_refused(
    outcome: dict[str, Any], tmp_path: Path
) -> None:
    assert reported(write_run(tmp_path / "run", *STEPS, outcome=json.dumps(outcome).encode()))


@pytest.mark.parametrize("field", ["memory_total", "memory_limit", "options", "environment"])
def test_a_manifest_that_nobody_wrote_is_reported_or_refused(field: str, tmp_path: Path) -> None:
    for place, value in enumerate((10**320, -1, 0, {}, {"a": {"b": [None]}}, "x" * 10**6, [])):
        manifest = json.dumps({"format": "leakscope-run", field: value}).encode()
        reported(write_run(tmp_path / str(place), *looked_at(), manifest=manifest))


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 10**6,
        b'{"type":"boundary","boundary":' * 10**5,
        b'{"type":"header","pid":' + b"[" * 10**5 + b"]" * 10**5 + b"}",
        b'{"type":"note","slug":"' + b"\\ud800" * 1000 + b'","message":"x"}',
        b'{"type":"note","slug":"\xff\xfe","message":"x"}',
        b'{"type":"note","type":"end","slug":"s","message":"m","status":"x"}',
        b"null",
        b"",
        b'{"type":null}',
        b'{"type":"boundary","boundary":{"index":NaN}}',
    ],
    ids=range(10),
)
def test_a_record_that_is_none_is_listed_and_costs_itself(payload: bytes, tmp_path: Path) -> None:
    report = reported(write_run(tmp_path / "run", *STEPS[:4], payload, *STEPS[4:], END))
    assert report.work.steps == 7
    assert len(report.errors) <= 1
    assert all(problem.where.startswith("main-1.journal@") for problem in report.errors)


def test_a_length_beyond_the_file_hides_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", *STEPS)
    journal = folder / "main-1.journal"
    for length in (MAX_PAYLOAD, MAX_PAYLOAD + 1, (1 << 32) - 1):
        claim = HEADER.pack(MAGIC, PLAIN, length, 0) + b"{"
        last = to_frame(json.dumps(boundary(8)).encode())
        journal.write_bytes(journal.read_bytes() + claim + last)
        report = reported(folder)
        assert report.work.steps == 8
        assert report.errors


def test_a_name_that_leads_out_of_the_run_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("a = []\na.append('TOP SECRET')\n")
    (tmp_path / "link.py").symlink_to(secret)
    journal_of_another = tmp_path / "other.journal"
    journal_of_another.write_bytes(b"TOP SECRET\n" * 100)
    for place, file in enumerate((str(secret), str(tmp_path / "link.py"), "../secret.py")):
        owner = {"kind": "module", "name": "m", "file": file, "line": 1, "variable": "a"}
        folder = write_run(tmp_path / str(place), *looked_at(owner=owner))
        (folder / "linked.journal").symlink_to(journal_of_another)
        (folder / "passwords.journal").symlink_to("/etc/passwd")
        report = analyse(open_run(folder))
        for shown in (render_html(report), render_text(report), render_json(report)):
            assert "TOP SECRET" not in shown
            assert "root:x:" not in shown
        assert "linked.journal" in "".join(problem.where for problem in report.errors)


def test_aliens_and_copies_next_to_the_journal_change_no_verdict(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", *looked_at(), END)
    alone = reported(folder)
    (folder / "main-1 (copy).journal").write_bytes((folder / "main-1.journal").read_bytes())
    (folder / "empty.journal").touch()
    (folder / "folder.journal").mkdir()
    os.mkfifo(folder / "pipe.journal")
    (folder / "dangling.journal").symlink_to("nowhere")
    (folder / "endless.journal").symlink_to("/dev/zero")
    (folder / "loop.journal").symlink_to("loop.journal")
    (folder / "notes.txt").write_text("mine")
    report = reported(folder)
    assert report.culprits == alone.culprits
    assert report.verdict == alone.verdict
    assert "empty.journal" in report.errors[0].where
    assert len(render_html(report)) < 4 << 20
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["manifest", "header"])
def test_a_newer_format_is_refused_with_advice(where: str, tmp_path: Path) -> None:
    newer = {"schema_version": 10**30}
    if where == "manifest":
        manifest = json.dumps({"format": "leakscope-run", **newer}).encode()
        folder = write_run(tmp_path / "run", *STEPS, manifest=manifest)
    else:
        folder = write_run(tmp_path / "run", {"type": "header", **newer}, *STEPS)
    with pytest.raises(NewerSchemaError, match="pip install --upgrade leakscope"):
        open_run(folder)


def test_ways_that_lead_in_circles_come_to_an_end(tmp_path: Path) -> None:
    parents = {"a": "b", "b": "c", "c": "a", "d": "d"}
    records = [
        one
        for i in range(8)
        for one in (
            census(i, *(row(p, parent=q, host_bytes=10**6 * i) for p, q in parents.items())),
            boundary(i),
        )
    ]
    assert reported(write_run(tmp_path / "run", *records, END))


MANY = 20_000
BURNING = {
    "phases": [boundary(i, phase=f"p{i}", kind="phase_begin") for i in range(MANY)],
    "marks": [boundary(i, phase="", label=f"m{i}", kind="mark") for i in range(MANY)],
    "gauges": [boundary(i, {f"g{i}": 1, f"d{i}.allocated": 1}) for i in range(MANY)],
    "devices": [boundary(i, {f"d{n}.allocated": 1 for n in range(MANY)}) for i in range(8)],
    "paths": [
        one for i in range(MANY // 2) for one in (census(i, row(f"r{i}")), boundary(i))
    ],
    "devices of rows": [
        one
        for i in range(8)
        for one in (census(i, row(device_bytes={f"d{n}": 1 for n in range(MANY)})), boundary(i))
    ],
    "problems": [boundary(0)]
    + [{"type": "error", "where": "w", "message": f"m{i}"} for i in range(MANY)],
    "bomb": [boundary(0)]
    + [{"type": "note", "slug": "s", "message": "x" * (60 << 20)} for _ in range(16)],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", BURNING)
def test_a_recording_made_to_burn_time_or_memory_is_read_within_bounds(
    kind: str, tmp_path: Path
) -> None:
    write_run(tmp_path / "run", *BURNING[kind], END)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    ended = fault_runs.python("-m", "leakscope", "report", "run", folder=tmp_path, prepare=limit)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert ended.code == 0, ended.err
    assert (tmp_path / "run" / "report.html").stat().st_size < 40 << 20


def test_nothing_readable_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_bytes(MANIFEST)
    (folder / "main-1.journal").write_bytes(b"\x80\x04K\x01." * 1000)
    with pytest.raises(LeakscopeError, match=r"Nothing in .* can be read"):
        open_run(folder)


OF_ANOTHER_FILE = """
import leakscope
told = "def feed():\\n for i in range(200):\\n  kept.append(bytes(50_000))\\n  scope.step()\\n"
kept = []
with leakscope.profile(quiet=True) as scope:
    for file in {files!r}:
        exec(compile(told, file, "exec"))
        feed()
"""


def test_code_that_claims_to_be_of_another_file_has_it_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "secret.env").write_text("TOKEN=TOP SECRET\n" * 20)
    project = tmp_path / "project"
    project.mkdir()
    files = ["/etc/passwd", str(tmp_path / "secret.env"), "../secret.env"]
    program = OF_ANOTHER_FILE.format(files=files)
    ended = fault_runs.recorded(program, project, "--no-report", "-q")
    assert ended.code == 0, ended.err
    assert [Path(file).name for file in open_run(project / "run").main.sources] == ["program.py"]
