"""Real torchrun over gloo: every rank records itself, and one report tells of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from limited_group import entering, limited_group
from sampling import sampled
from warm import Warm

from leakscope.probes.cgroup import memory_events
from leakscope.recording import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent / "rank_programs"
ROOT = Path(__file__).parents[2]
NOBODY = "-1"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_rank_is_left(tmp_path: Path) -> Iterator[None]:
    """End the ranks of a launcher that was cut off: each has a session of its own."""
    yield
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()) == tmp_path:
                process.kill()


def torchrun(
    folder: Path,
    ranks: int,
    leaky: str,
    dying: str = NOBODY,
    *options: str,
    program: tuple[str, ...] = (),
    group: Path | None = None,
    timeout_s: float = 240,
):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    recorded = ["-m", "leakscope", "run", "--quiet", "--out", "run"]
    return subprocess.run(
        [
            sys.executable,
            *launcher,
            *options,
            *recorded,
            str(HERE / "gloo.py"),
            leaky,
            dying,
            *program,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        preexec_fn=entering(group),
    )


def profiled(folder: Path, how: str, when: str, late: str = NOBODY) -> Path:
    """Run ranks that record themselves by profile() and return the one directory they made."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [
            sys.executable,
            *(launcher if how == "launched" else []),
            str(HERE / "profiled.py"),
            how,
            when,
            late,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "leakscope-runs").iterdir()
    return made


@pytest.fixture
def report(tmp_path: Path, leakscope_commands: Warm) -> Callable[..., dict[str, Any]]:
    """Return what reads a run's report; by default of the run in the test's folder."""

    def read(run: str = "run") -> dict[str, Any]:
        command = ["-m", "leakscope", "report", run, "--format", "json", "--out", "-"]
        return json.loads(leakscope_commands.run(command, tmp_path).well().out)

    return read


def assert_leaks_alone(found: dict[str, Any], leaky: int, ranks: int) -> None:
    """Assert that one rank alone keeps something, and that nothing else is accused."""
    (culprit,) = (c for c in found["culprits"] if c["severity"] != "note")
    assert culprit["name"] == "Trainer.predictions"
    assert list(culprit["rates_by_rank"]) == [str(leaky)]
    assert f"in rank {leaky} of {ranks} only" in culprit["sentence"]
    lines = (HERE / "gloo.py").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "# feeds" in text)
    assert culprit["fed_at"][0].endswith(f"gloo.py:{line}")


def test_a_rank_that_leaks_alone_is_distinguished_from_the_others(tmp_path, report):
    done = torchrun(tmp_path, 4, "3")
    assert done.returncode == 0, done.stderr
    found = report()
    assert [row["rank"] for row in found["ranks"]] == list(range(4))
    assert {row["steps"] for row in found["ranks"]} == {6 * 20}
    assert {row["ended"] for row in found["ranks"]} == {"completed"}
    assert_leaks_alone(found, 3, ranks=4)


def test_ranks_measure_at_the_same_steps(tmp_path, report):
    done = torchrun(tmp_path, 2, NOBODY)
    assert done.returncode == 0, done.stderr
    found = report()
    assert found["verdict"] == "clean", found["headline"]
    first, second = measured_at(tmp_path / "run")
    assert len(first & second) >= 0.7 * len(first | second)


def test_a_rank_whose_heap_is_larger_measures_where_the_other_does(tmp_path):
    done = torchrun(tmp_path, 2, NOBODY, NOBODY, program=("12", "1"))
    assert done.returncode == 0, done.stderr
    quick, slow = sorted(measured_at(tmp_path / "run"), key=len)[::-1]
    assert len(slow) >= 8
    assert len(slow & quick) >= 0.7 * len(slow)


def measured_at(run: Path) -> list[set[tuple[Any, ...]]]:
    """Return for each rank the boundaries at which it looked at its heap."""
    return [
        {
            (m.boundary.kind, m.boundary.phase, m.boundary.occurrence, m.boundary.batch)
            for m in recording.measurements
            if m.census is not None
        }
        for recording in open_run(run).recordings
    ]


def test_what_a_killed_rank_had_recorded_is_in_the_report(tmp_path, report):
    done = torchrun(tmp_path, 2, NOBODY, "1")
    assert done.returncode != 0
    found = report()
    first, second = found["ranks"]
    assert 60 <= second["steps"] <= 70
    assert "killed" in second["ended"]
    assert found["run"]["ended"].startswith("rank 1 was killed (SIGKILL); rank 0: ")
    assert first["steps"] >= 60


def test_the_kernels_kill_of_one_rank_is_reported_with_what_it_held(tmp_path, report):
    if memory_events().oom_kills is None:
        pytest.skip("the kernel counts no kills here")
    with limited_group(1536 * MIB) as group:
        done = torchrun(
            tmp_path, 2, "1", program=("400", NOBODY, str(4 * MIB)), group=group, timeout_s=120
        )
    assert done.returncode != 0
    found = report()
    assert found["rank"] == 1
    assert found["headline"].startswith("Rank 1 was killed by the kernel's out-of-memory killer")
    assert found["run"]["ended"].startswith(
        "rank 1 was killed by the kernel's out-of-memory killer; rank 0: "
    )
    assert found["ranks"][1]["ended"] == "killed by the kernel's out-of-memory killer"
    ended = found["out_of_memory"]
    assert (ended["cause"], ended["limit_bytes"]) == ("killed", 1536 * MIB)
    assert ended["names"][0]["name"] == "Trainer.predictions"
    assert ended["fits_if"][0]["title"] == "Mend Trainer.predictions"


def test_ranks_that_were_started_again_are_distinguished(tmp_path, report):
    # Now and then gloo finds an address of the attempt before, and the launcher tries once more.
    done = torchrun(tmp_path, 2, "1", "1", "--max-restarts=5")
    assert done.returncode == 0, done.stderr
    headers = [recording.header for recording in open_run(tmp_path / "run").recordings]
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} <= {(h.attempt, h.rank) for h in headers}
    found = report()
    first, *failed, last = found["attempts"]
    assert 60 <= first["steps"] <= 70
    assert first["ended"].startswith("rank ")
    assert (last["steps"], last["ended"], last["is_judged"]) == (6 * 20, "completed", True)
    assert all(attempt["steps"] == 0 for attempt in failed)
    assert f"started the training {len(found['attempts'])} times" in found["notes"][0]
    assert {row["steps"] for row in found["ranks"]} == {6 * 20}
    assert found["run"]["ended"] == "completed"
    assert_leaks_alone(found, 1, ranks=2)


@pytest.mark.parametrize("when", sampled(["before", "after"], ["before"]))
def test_spawned_ranks_that_profile_themselves_record_into_one_directory(when, tmp_path, report):
    made = profiled(tmp_path, "spawned", when)
    run = open_run(made)
    assert [(r.header.role, r.header.rank, r.header.world_size) for r in run.recordings] == [
        ("rank", 0, 2),
        ("rank", 1, 2),
    ]
    assert all(recording.end is not None for recording in run.recordings)
    found = report(str(made))
    assert {row["steps"] for row in found["ranks"]} == {6 * 10}
    assert found["verdict"] != "leak", found["headline"]


def test_a_rank_that_began_to_record_late_is_next_to_the_others(tmp_path, report):
    found = report(str(profiled(tmp_path, "launched", "before", late="1")))
    assert [row["steps"] for row in found["ranks"]] == [6 * 10, 3 * 10]
    assert found["odd_rank"] is None
    assert found["attempts"] == []
    assert found["verdict"] != "leak", found["headline"]
