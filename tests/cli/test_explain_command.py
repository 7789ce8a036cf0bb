"""`leakscope explain`: from a recording or a report.json to few words, in plain text or JSON."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest
from cli_runs import SOURCE, record_run
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.cli.report import USUAL_BUDGET
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.errors import LeakscopeError
from leakscope.model.record import BoundaryRecord, HeaderRecord, RunManifest
from leakscope.recording import RecordingWriter, RunDirectory
from leakscope.report import json_schema


def invoke(*words: object) -> Result:
    return CliRunner().invoke(leakscope, [str(word) for word in words], standalone_mode=False)


@pytest.fixture
def leaking(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run")


def parts_of(run: Path, *words: object) -> dict[str, dict[str, object]]:
    output = json.loads(invoke("explain", run, "--json", *words).stdout)
    jsonschema.validate(output, {**json_schema(), "$ref": "#/$defs/RunExplanation"})
    return {part["kind"]: part for part in reversed(output["parts"])}


def test_the_culprit_its_line_and_the_next_command_are_reported(leaking: Path) -> None:
    result = invoke("explain", leaking)
    assert (result.exception, result.stderr) == (None, "")
    first, second, *_, last = result.stdout.splitlines()
    line = SOURCE.splitlines().index("    history.append(bytearray(4 << 20))") + 1
    assert first.startswith("✗ Leak · ")
    assert f"Fed at train.py:{line}." in second
    assert "history" in second
    assert last.startswith("next: ")


def test_json_has_the_same_parts(leaking: Path) -> None:
    lines = invoke("explain", leaking).stdout
    parts = parts_of(leaking)
    assert parts["culprit"]["bytes_per_unit"] == pytest.approx(4 << 20, rel=0.1)
    assert parts["culprit"]["unit"] == "epoch"
    for part in parts.values():
        assert part["text"] in lines


def test_the_next_command_that_is_reported_can_be_run(leaking: Path) -> None:
    command = shlex.split(str(parts_of(leaking)["next"]["command"]))
    assert command[0] == "leakscope"
    words = [str(leaking) if word == "NEW-RUN" else word for word in command[1:]]
    assert invoke(*words, "--help").exception is None


def test_without_a_number_the_usual_budget_is_kept(leaking: Path) -> None:
    output = json.loads(invoke("explain", leaking, "--json").stdout)
    assert output["budget"] == USUAL_BUDGET
    assert output["tokens"] <= USUAL_BUDGET


def test_what_there_is_no_room_for_stands_in_the_last_line_with_the_command_for_it(
    leaking: Path,
) -> None:
    result = invoke("explain", leaking, "--budget", 90)
    last = result.stdout.splitlines()[-1]
    assert last.startswith("left out for the budget: ")
    command = shlex.split(last.partition("all of it: ")[2])
    whole = invoke(*command[1:])
    assert "left out" not in whole.stdout
    assert len(whole.stdout) > len(result.stdout)


def test_a_run_that_does_not_leak_is_explained(tmp_path: Path) -> None:
    parts = parts_of(record_run(tmp_path / "run", grows=0))
    assert str(parts["verdict"]["text"]).startswith("✓ No leak")
    assert "culprit" not in parts


def test_a_run_that_was_too_short_says_what_would_settle_it(tmp_path: Path) -> None:
    text = invoke("explain", record_run(tmp_path / "run", epochs=1)).stdout
    assert text.startswith("? Not enough evidence · ")
    assert text.splitlines()[-1] == "next: run it for longer: leakscope run train.py"


def test_a_run_that_was_killed_for_memory_is_explained(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    RunDirectory(run).write_outcome(
        {"exit_code": 137, "signal": 9, "oom_killed": 1, "oom_kills": 1}
    )
    text = invoke("explain", run).stdout
    assert "memory" in text.splitlines()[0].lower()
    assert "next: " in text.splitlines()[-1]


def test_several_ranks_are_reported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, RunManifest(run_id="one", script="train.py"))
    for rank in range(3):
        writer = RecordingWriter(run, HeaderRecord(role="rank", rank=rank, world_size=3, pid=rank))
        for index in range(8):
            boundary = Boundary(index=index, kind=BoundaryKind.MARK, time_s=float(index), label="x")
            writer.write(BoundaryRecord(boundary=boundary, gauges={"rss": 100 << 20}))
        writer.close()
    assert "ranks: 3 in all; nothing grows in any" in invoke("explain", run).stdout


def test_a_report_that_was_kept_without_its_recording_is_explained(leaking: Path) -> None:
    kept = leaking.parent / "kept.json"
    kept.write_text(invoke("report", leaking, "--format", "json", "--out", "-").stdout)
    text = invoke("explain", kept).stdout
    assert text.startswith("✗ Leak · ")
    assert str(kept) not in text.splitlines()[-1], "only a recording can be asked for more"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path / "nothing", "does not exist"),
        (lambda path: path, "is empty"),
        (lambda path: path / "notes.json", "is no report of leakscope"),
        (lambda path: path / "notes.txt", "is a file that belongs to no run"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(make, says: str, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    target = make(shelf)
    if target.suffix:
        target.write_text("hello")
    result = invoke("explain", target)
    assert isinstance(result.exception, LeakscopeError)
    assert says in str(result.exception)


@pytest.mark.parametrize("budget", ["0", "-5", "many"])
def test_a_budget_that_is_no_number_of_tokens_is_refused(budget: str, leaking: Path) -> None:
    result = CliRunner().invoke(leakscope, ["explain", str(leaking), "--budget", budget])
    assert result.exit_code == 2
    assert "--budget" in result.stderr
