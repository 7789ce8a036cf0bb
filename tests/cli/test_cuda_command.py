"""`leakscope cuda`: explains and compares snapshot files, refuses others in one sentence."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.cli.output import exit_code_of

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def invoke(*words: object) -> Result:
    return CliRunner().invoke(leakscope, [str(word) for word in words], standalone_mode=False)


def snapshot(path: Path, live: int, device: int = 0) -> Path:
    frames = [{"filename": "/home/u/model.py", "line": 9, "name": "forward"}]
    used = {"state": "active_allocated", "frames": frames}
    blocks: list[dict[str, Any]] = [
        {"address": 0, "size": live, "requested_size": live, **used},
        {"address": live, "size": 2 * MIB, "requested_size": 1, "state": "inactive", "frames": []},
    ]  # fmt: skip
    segment = {
        "device": device,
        "address": 0,
        "total_size": live + 2 * MIB,
        "stream": 0,
        "blocks": blocks,
    }
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    return path


def test_one_snapshot_is_explained_in_the_terminal(tmp_path: Path) -> None:
    result = invoke("cuda", snapshot(tmp_path / "s.pickle", 64 * MIB))
    assert result.exception is None
    assert "64 MiB live" in result.output
    assert "/home/u/model.py:9" in result.output


def test_page_is_written_whole_and_named(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = invoke("cuda", snapshot(tmp_path / "s.pickle", 64 * MIB), "--out", page)
    assert page.read_text().startswith("<!doctype html>")
    assert f"explanation in {page}" in result.output


def test_json_is_written_to_stdout(tmp_path: Path) -> None:
    result = invoke("cuda", snapshot(tmp_path / "s.pickle", 64 * MIB), "--format", "json")
    assert json.loads(result.output)["total"]["active"] == 64 * MIB


def test_several_snapshots_are_compared(tmp_path: Path) -> None:
    files = [snapshot(tmp_path / f"{n}.pickle", n * 64 * MIB) for n in (1, 2, 3)]
    result = invoke("cuda", *files)
    assert "a leak" in " ".join(result.output.split())
    assert "64 MiB" in result.output
    output = json.loads(invoke("cuda", *files, "--format", "json").output)
    assert output["names"] == ["1.pickle", "2.pickle", "3.pickle"]
    page = tmp_path / "page.html"
    assert invoke("cuda", *files, "--out", page).exception is None
    assert page.exists()


def test_one_device_can_be_chosen(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "s.pickle", 64 * MIB, device=2)
    assert "cuda:2" in invoke("cuda", path, "--device", "2").output
    result = invoke("cuda", path, "--device", "0")
    assert result.exception is not None
    assert exit_code_of(result.exception) == 1


@pytest.mark.parametrize(
    "content", [b"", b"words", pickle.dumps(os.system), b"\x80\x04]r\xff\xff\xff\xff."]
)
def test_what_is_no_snapshot_ends_with_1_and_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", "cuda", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("leakscope: ")
    assert done.stderr.count("\n") == 1


def test_command_line_without_a_file_makes_no_sense() -> None:
    result = invoke("cuda")
    assert result.exception is not None
    assert exit_code_of(result.exception) == 2


def test_neither_torch_nor_matplotlib_is_loaded_for_the_terminal(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "s.pickle", 64 * MIB)
    code = (
        "import sys; from leakscope.cli import leakscope\n"
        f"leakscope.main(['cuda', {str(path)!r}], standalone_mode=False)\n"
        "print(sorted({'torch', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "words", "größer\n" * 2000])
def test_text_is_reported_as_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "exit.py"
    path.write_text(text)
    result = invoke("cuda", path)
    assert str(result.exception) == f"{path} is no snapshot of torch's: it is text, not a pickle."


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_code_is_reported_as_one(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(pickle.dumps(os.system, protocol))
    assert "it asks for" in str(invoke("cuda", path).exception)
