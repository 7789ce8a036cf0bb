"""What is concluded of a process tree that was only watched from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import EndRecord, HeaderRecord, RunManifest
from leakscope.model.report import Report, RunVerdict
from leakscope.model.run import Measurement, Recording, Run

MIB = 1 << 20


def watched(*readings: dict[str, int], status: str = "watched no longer", **outcome: int) -> Report:
    """Return the report of a run with these readings, one a second."""
    measurements = [
        Measurement(
            boundary=Boundary(
                index=n,
                kind=BoundaryKind.MARK if n else BoundaryKind.RUN_BEGIN,
                time_s=float(n),
                label="reading" if n else "",
            ),
            gauges=gauges,
        )
        for n, gauges in enumerate(readings)
    ]
    recording = Recording(
        HeaderRecord(role="monitor", pid=7),
        measurements=measurements,
        end=None if outcome else EndRecord(status=status, time_s=float(len(readings))),
    )
    manifest = RunManifest(
        leakscope_version="0", run_id="r", created=0.0, command=[], script="train.py",
        project_root="/", options={}, environment={}, memory_total=64 << 30,
    )  # fmt: skip
    run = Run(Path("watched"), manifest, [recording])
    run.outcome = {**outcome}
    return analyse(run)


def growing(files: int = 0, heap: int = 0, children: int = 0, count: int = 40) -> Report:
    """Return the report of a tree that gains so many MiB with each reading."""
    return watched(
        *(
            {
                gauge.RSS: (200 + n * (files + heap)) * MIB,
                gauge.PSS: (200 + n * (files + heap)) * MIB,
                gauge.CHILDREN_PSS: n * children * MIB,
                gauge.TREE_FILES: (50 + n * files) * MIB,
            }
            for n in range(count)
        )
    )


def test_a_heap_that_grows_is_reported() -> None:
    report = growing(heap=8)
    assert report.verdict is RunVerdict.LEAK
    assert report.findings[0].kind == "tree_grows"


FALLING = [200 + 8 * n for n in range(40)] + [300, 250, 200]


def test_what_a_process_gives_back_when_it_ends_is_no_fall() -> None:
    readings = [{gauge.RSS: size * MIB} for size in FALLING]
    report = watched(*readings, status="ended")
    assert report.verdict is RunVerdict.LEAK
    assert "480 MiB more per minute" in report.findings[0].text


def test_what_is_released_while_it_runs_is_a_fall() -> None:
    assert watched(*({gauge.RSS: size * MIB} for size in FALLING)).verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("steps", [8, 24])
def test_a_tree_that_grew_by_little_is_no_acquittal(steps: int) -> None:
    readings = [{gauge.RSS: 200 * MIB + n * MIB * steps // 24} for n in range(25)]
    report = watched(*readings)
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing[0].startswith(f"Memory grew by {steps} MiB, too short a time")


def test_what_rests_after_a_warm_up_is_clean() -> None:
    readings = [{gauge.RSS: (200 + min(n, 12)) * MIB} for n in range(60)]
    assert watched(*readings).verdict is RunVerdict.CLEAN


def test_growth_of_a_program_that_was_slow_at_first_is_reported() -> None:
    sizes = [200 + 3 * n for n in range(20)] + [260 + 10 * n for n in range(40)]
    assert watched(*({gauge.RSS: size * MIB} for size in sizes)).verdict is RunVerdict.LEAK


def test_what_is_read_into_memory_at_the_end_is_no_growth() -> None:
    sizes = [200 + n // 20 for n in range(52)] + [202 + 30 * n for n in range(8)]
    assert watched(*({gauge.RSS: size * MIB} for size in sizes)).verdict is not RunVerdict.LEAK


def test_pages_of_files_are_no_growth() -> None:
    report = growing(files=8)
    assert (report.verdict, report.findings) == (RunVerdict.CLEAN, [])


def test_next_to_pages_of_files_the_heap_is_reported_at_its_own_rate() -> None:
    (finding,) = growing(files=20, heap=4).findings
    assert 230 * MIB < finding.bytes_per_unit < 250 * MIB, "4 MiB a second"
    assert "most of it in the process itself" in finding.text


def test_children_that_grow_are_reported_next_to_pages_of_files() -> None:
    (finding,) = growing(files=20, children=4).findings
    assert "most of it in child processes" in finding.text


def test_files_that_children_read_are_not_taken_for_what_grows_in_the_process() -> None:
    readings = [
        {
            gauge.PSS: (200 + 4 * n) * MIB,
            gauge.RSS: (200 + 4 * n) * MIB,
            gauge.CHILDREN_PSS: 20 * n * MIB,
            gauge.TREE_FILES: 20 * n * MIB,
        }
        for n in range(40)
    ]
    (finding,) = watched(*readings).findings
    assert "in all." in finding.text


def test_a_kernel_that_tells_nothing_of_files_leaves_all_growth() -> None:
    readings = [{gauge.RSS: (200 + 8 * n) * MIB} for n in range(40)]
    assert watched(*readings).findings[0].kind == "tree_grows"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "The process ended before its memory could be read."),
        (1, "Only 1 reading; watch longer"),
        (4, "Only 4 readings, of which 3 count"),
    ],
)
def test_too_few_readings_are_all_counted(count: int, text: str) -> None:
    report = watched(*[{gauge.RSS: 40 * MIB}] * count, status="ended")
    assert report.verdict is RunVerdict.INCONCLUSIVE
    assert report.missing[0].startswith(text)
    assert "train" not in report.missing[0]


def test_a_watched_program_that_the_kernel_killed_is_reported_without_steps_and_censuses() -> None:
    readings = [
        {gauge.RSS: 200 * MIB, gauge.CGROUP_USED: 299 * MIB, gauge.CGROUP_LIMIT: 300 * MIB}
        for _ in range(19)
    ]
    report = watched(*readings, oom_killed=1, signal=9)
    assert report.verdict is RunVerdict.OUT_OF_MEMORY
    assert "out-of-memory killer when it had been watched for 18 s: 299 MiB" in report.headline
    (found,) = report.findings
    assert "watched from outside, where nothing has a name" in found.text
    assert found.remedy.title == "Run it under leakscope to learn what grows"
