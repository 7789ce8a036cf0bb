"""Programs whose memory grows in DataLoader workers, or seems to, run through ``leakscope run``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "worker_programs"
METHODS = ("fork", "spawn")
IMAGES = 640 / 2
"""In each worker, in each pass."""


@functools.cache
def report_of(program: str, method: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "leakscope", "run", "--quiet", "--out", f"{folder}/run"]
        done = subprocess.run(
            [sys.executable, *command, str(PROGRAMS / f"{program}.py"), method],
            capture_output=True,
            text=True,
            env=os.environ,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads((Path(folder) / "run" / "report.json").read_text())


def accusations(report: dict[str, Any]) -> list[str]:
    told = [*report["culprits"], *report["findings"]]
    return [one.get("name") or one["kind"] for one in told if one["severity"] != "note"]


def finding(report: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(f for f in report["findings"] if f["kind"] == kind)


def feeding_line(program: str) -> int:
    lines = (PROGRAMS / f"{program}.py").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if "# feeds" in line)


@pytest.mark.parametrize("method", METHODS)
def test_a_cache_in_the_workers_is_named_with_its_line(method):
    report = report_of("own_leak", method)
    assert report["verdict"] == "leak"
    assert accusations(report) == ["FrameDataset.cache"], report["headline"]
    (culprit,) = (c for c in report["culprits"] if c["severity"] != "note")
    assert culprit["workers"] == 2
    assert culprit["bytes_per_unit"] == pytest.approx(IMAGES * 8000 * 4, rel=0.1)
    assert culprit["fed_at"][0].endswith(f"own_leak.py:{feeding_line('own_leak')}")


def test_what_workers_copy_of_a_list_of_dicts_is_named_and_no_leak():
    report = report_of("list_of_dicts", "fork")
    assert report["verdict"] != "leak"
    assert accusations(report) == []
    assert finding(report, "copy_on_write")["title"] == (
        "Workers copy FrameDataset.samples by looking at it"
    )
    assert {name for row in report["workers"] for name in row["copies"]} == {"FrameDataset.samples"}


def test_the_same_as_arrays_is_not_copied():
    report = report_of("arrays", "fork")
    assert report["verdict"] == "clean"
    assert report["findings"] == []
    assert [row["copies"] for row in report["workers"]] == [[], []]


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="there is no shared memory here")
def test_segments_that_nobody_unlinks_are_found():
    report = report_of("shared_memory_left", "fork")
    assert accusations(report) == ["shared_memory"]
    per_epoch = finding(report, "shared_memory")["bytes_per_unit"]
    assert per_epoch == pytest.approx(640 * 65_536, rel=0.15)


@pytest.mark.parametrize("method", METHODS)
def test_batches_prefetched_far_ahead_are_no_leak(method):
    report = report_of("deep_prefetch", method)
    assert report["verdict"] == "clean", report["headline"]
    assert accusations(report) == []


@pytest.mark.parametrize("method", METHODS)
def test_each_worker_tells_what_it_did(method):
    workers = report_of("own_leak", method)["workers"]
    assert [row["start_method"] for row in workers] == [method] * 2
    assert [row["batches"] for row in workers] == [6 * 20] * 2
