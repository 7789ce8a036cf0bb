"""Programs whose memory grows in DataLoader workers, or seems to, run through ``leakscope run``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled
from warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "worker_programs"
METHODS = ("fork", "spawn")
EITHER = sampled(METHODS, ["fork"])
IMAGES = 640 / 2
"""In each worker, in each pass."""


@pytest.fixture(scope="module")
def report_of(
    tmp_path_factory: pytest.TempPathFactory, leakscope_commands: Warm
) -> Callable[..., dict[str, Any]]:
    """Return what runs a program under leakscope, once, and returns its report."""

    @functools.cache
    def report(program: str, method: str, *words: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(program)
        command = ["-m", "leakscope", "run", "--quiet", "--out", f"{folder}/run"]
        script = str(PROGRAMS / f"{program}.py")
        leakscope_commands.run([*command, script, method, *words], Path.cwd()).well()
        return json.loads((folder / "run" / "report.json").read_text())

    return report


def accusations(report: dict[str, Any]) -> list[str]:
    reported = [*report["culprits"], *report["findings"]]
    return [item.get("name") or item["kind"] for item in reported if item["severity"] != "note"]


def finding(report: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(f for f in report["findings"] if f["kind"] == kind)


def kinds(report: dict[str, Any]) -> set[str]:
    return {found["kind"] for found in report["findings"]}


def feeding_line(program: str) -> int:
    lines = (PROGRAMS / f"{program}.py").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if "# feeds" in line)


@pytest.mark.parametrize("method", METHODS)
def test_a_cache_in_the_workers_is_named_with_its_line(method, report_of):
    report = report_of("own_leak", method)
    assert report["verdict"] == "leak"
    assert accusations(report) == ["FrameDataset.cache"], report["headline"]
    (culprit,) = (c for c in report["culprits"] if c["severity"] != "note")
    assert culprit["workers"] == 2
    assert culprit["bytes_per_unit"] == pytest.approx(IMAGES * 8000 * 4, rel=0.1)
    assert culprit["fed_at"][0].endswith(f"own_leak.py:{feeding_line('own_leak')}")
    assert "worker_copies" not in kinds(report)


def test_a_cache_that_ends_with_the_workers_of_each_epoch_is_no_leak(report_of):
    report = report_of("own_leak", "fork", "anew")
    assert report["verdict"] == "clean", report["headline"]
    (note,) = (c for c in report["culprits"] if c["name"] == "FrameDataset.cache")
    assert (note["severity"], note["growth"]) == ("note", "within")


@pytest.mark.parametrize("words", [(), ("anew",)], ids=["persistent", "restarted"])
def test_what_workers_copy_of_a_list_of_dicts_is_named_and_no_leak(words, report_of):
    report = report_of("list_of_dicts", "fork", *words)
    assert report["verdict"] != "leak"
    assert accusations(report) == []
    found = finding(report, "copy_on_write")
    assert found["title"] == "Workers copy FrameDataset.samples by looking at it"
    assert "2 forked workers" in found["text"]
    assert {name for row in report["workers"] for name in row["copies"]} == {"FrameDataset.samples"}


def test_spawned_workers_hold_a_list_of_dicts_each_and_copy_nothing(report_of):
    report = report_of("list_of_dicts", "spawn")
    assert report["verdict"] == "clean", report["headline"]
    assert kinds(report) == {"worker_copies"}
    found = finding(report, "worker_copies")
    assert found["severity"] == "note"
    assert found["title"] == "Each worker has a copy of FrameDataset.samples"
    assert "in each of 2 workers" in found["text"]
    assert "It doesn't grow" in found["text"]
    assert [row["copies"] for row in report["workers"]] == [[], []]


@pytest.mark.parametrize("method", EITHER)
def test_the_same_as_arrays_is_not_copied(method, report_of):
    report = report_of("arrays", method)
    assert report["verdict"] == "clean"
    assert report["findings"] == []
    assert [row["copies"] for row in report["workers"]] == [[], []]


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="there is no shared memory here")
@pytest.mark.parametrize("method", EITHER)
def test_segments_that_nobody_unlinks_are_found(method, report_of):
    report = report_of("shared_memory_left", method)
    assert accusations(report) == ["shared_memory"]
    found = finding(report, "shared_memory")
    assert found["bytes_per_unit"] == pytest.approx(640 * 65_536, rel=0.15)
    line = feeding_line("shared_memory_left")
    assert found["fed_at"][0].endswith(f"shared_memory_left.py:{line}")


def test_loaders_kept_with_their_workers_are_named_by_who_keeps_them(report_of):
    report = report_of("loaders_kept", "fork")
    assert accusations(report) == ["worker_processes"], report["headline"]
    found = finding(report, "worker_processes")
    assert found["title"] == "Worker processes pile up: loaders keeps them alive"
    assert "16 child processes at last, 2 more per epoch" in found["text"]
    assert found["fed_at"][0].endswith(f"loaders_kept.py:{feeding_line('loaders_kept')}")
    assert not kinds(report) & {"children", "processes"}


def test_loaders_for_several_purposes_and_loaders_dropped_again_are_clean(report_of):
    report = report_of("loaders_by_purpose", "fork")
    assert report["verdict"] == "clean", report["headline"]
    assert report["culprits"] == report["findings"] == []


@pytest.mark.parametrize("method", EITHER)
def test_batches_prefetched_far_ahead_are_no_leak(method, report_of):
    report = report_of("deep_prefetch", method)
    assert report["verdict"] == "clean", report["headline"]
    assert accusations(report) == []
    (ahead,) = (c for c in report["cleared"] if c["name"] == "batches prefetched by loader 1")
    assert ahead["kind"] == "bounded"
    assert ahead["total_bytes"] == pytest.approx(2 * 16 * 16 * 20_000 * 4, rel=0.01)
    assert "32 batches" in ahead["reason"]


def test_a_queue_of_the_programs_own_that_a_slow_consumer_lets_grow_is_a_leak(report_of):
    report = report_of("own_queue", "fork")
    assert accusations(report) == ["waiting", "shared_descriptors"], report["headline"]
    (culprit,) = (c for c in report["culprits"] if c["severity"] != "note")
    assert culprit["fed_at"][0].endswith(f"own_queue.py:{feeding_line('own_queue')}")


def test_descriptors_that_kept_batches_hold_are_reported_with_who_keeps_them(report_of):
    found = finding(report_of("own_queue", "fork"), "shared_descriptors")
    assert "20 per epoch" in found["text"]
    assert "waiting gains items as fast" in found["text"]
    assert "Of 512 that may be open" in found["text"]
    assert "open_files" not in kinds(report_of("own_queue", "fork"))


def test_workers_that_are_killed_and_started_again_are_reported_and_no_growth(report_of):
    report = report_of("workers_killed", "fork")
    assert report["verdict"] == "clean", report["headline"]
    assert kinds(report) == {"workers_died"}
    text = finding(report, "workers_died")["text"]
    assert text.startswith("2 workers of loader 1 were ended by SIGKILL between steps")


@pytest.mark.parametrize("method", METHODS)
def test_each_worker_tells_what_it_did(method, report_of):
    workers = report_of("own_leak", method)["workers"]
    assert [row["start_method"] for row in workers] == [method] * 2
    assert [row["batches"] for row in workers] == [6 * 20] * 2
