"""``leakscope merge`` makes one run of the directories of its ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import BoundaryRecord, EndRecord, HeaderRecord, RunManifest
from leakscope.recording import RecordingWriter, RunDirectory, open_run

ROOT = Path(__file__).parents[2]


def leakscope(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leakscope", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def recorded(
    folder: Path,
    rank: int,
    pid: int = 7,
    outcome: dict | None = None,
    *,
    script: str = "train.py",
    ranks: int = 3,
    launch: str = "",
) -> Path:
    manifest = RunManifest(run_id=folder.name, script=script, launch=launch)
    directory = RunDirectory.create(folder, manifest)
    header = HeaderRecord(role="rank", rank=rank, world_size=ranks, pid=pid)
    writer = RecordingWriter(folder, header)
    for index in range(5):
        boundary = Boundary(index=index, kind=BoundaryKind.MARK, time_s=float(index), label="x")
        writer.write(BoundaryRecord(boundary=boundary, gauges={"rss": 100 + rank}))
    writer.write(EndRecord(status="completed"))
    writer.close()
    if outcome:
        directory.write_outcome(outcome)
    return folder


@pytest.fixture
def ranks(tmp_path):
    return [
        recorded(tmp_path / "run-rank2", 2),
        recorded(tmp_path / "run", 0, outcome={"exit_code": 3}),
        recorded(tmp_path / "run-rank1", 1, pid=8),
    ]


def test_what_supervisors_of_other_ranks_saw_is_merged_too(ranks, tmp_path):
    RunDirectory(ranks[0]).write_outcome({"exit_code": 137, "oom_killed": 1}, rank=2)
    leakscope("merge", *map(str, ranks), "--out", "all", folder=tmp_path)
    run = open_run(tmp_path / "all")
    assert run.outcome == {"exit_code": 3}
    assert run.outcomes[0, 2]["oom_killed"] == 1


def test_all_ranks_are_in_the_merged_run(ranks, tmp_path):
    done = leakscope("merge", *map(str, ranks), "--out", "all", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "all")
    assert [r.header.rank for r in run.recordings] == [0, 1, 2]
    assert run.manifest.run_id == "run"
    assert run.outcome == {"exit_code": 3}
    assert (tmp_path / "all" / "report.html").exists()
    assert "3 runs merged" in done.stdout


def test_what_is_merged_stays_as_it_is(ranks, tmp_path):
    before = {f: f.read_bytes() for folder in ranks for f in folder.iterdir()}
    leakscope("merge", *map(str, ranks), "--out", "all", folder=tmp_path)
    assert {f: f.read_bytes() for folder in ranks for f in folder.iterdir()} == before


def test_processes_of_the_same_number_are_kept_apart(tmp_path):
    folders = [recorded(tmp_path / f"node{n}", n, pid=5) for n in range(2)]
    for folder in folders:  # as if both had had the same name
        (journal,) = folder.glob("*.journal")
        journal.rename(folder / "rank-5.journal")
    leakscope("merge", *map(str, folders), "--out", "all", folder=tmp_path)
    assert [r.header.rank for r in open_run(tmp_path / "all").recordings] == [0, 1]


@pytest.mark.parametrize(
    ("names", "printed"),
    [
        (("run", "nothing"), "nothing does not exist"),
        (("run", "again"), "both recorded rank 0"),
        (("run", "run"), "both recorded rank 0"),
    ],
)
def test_what_does_not_belong_together_is_refused(names, printed, tmp_path):
    recorded(tmp_path / "run", 0)
    recorded(tmp_path / "again", 0)
    done = leakscope("merge", *names, "--out", "all", folder=tmp_path)
    assert done.returncode == 1
    assert printed in done.stderr
    assert not (tmp_path / "all").exists()
    assert "Traceback" not in done.stderr


def test_a_run_that_is_there_already_is_not_overwritten(ranks, tmp_path):
    recorded(tmp_path / "all", 0)
    done = leakscope("merge", *map(str, ranks), "--out", "all", folder=tmp_path)
    assert done.returncode == 1
    assert "already holds a run" in done.stderr
    words = ("merge", *map(str, ranks), "--out", "all", "--force")
    assert leakscope(*words, folder=tmp_path).returncode == 0
    assert len(open_run(tmp_path / "all").recordings) == 3


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"script": "/home/me/other.py"}, "the script is train.py in the first, other.py in the"),
        ({"ranks": 1}, "the number of ranks is 3 in the first, 1 in the second"),
        ({"launch": "torchrun b"}, "the launch is torchrun a in the first, torchrun b in the"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(other, why, tmp_path):
    runs = [
        recorded(tmp_path / "one", 1, launch="torchrun a"),
        recorded(tmp_path / "other", 0, **other),
    ]
    done = leakscope("merge", *map(str, runs), "--out", "all", folder=tmp_path)
    assert done.returncode == 1
    assert f"don't belong together: {why}" in done.stderr
    assert not (tmp_path / "all").exists()


def test_machines_that_call_the_launch_by_processes_of_theirs_are_merged(tmp_path):
    runs = [
        recorded(tmp_path / "node0", 0, launch="started by node0 17", script="/a/train.py"),
        recorded(tmp_path / "node1", 1, launch="started by node1 99", script="/b/train.py"),
    ]
    done = leakscope("merge", *map(str, runs), "--out", "all", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 runs merged" in done.stderr + done.stdout


def test_with_one_run_alone_there_is_nothing_to_merge(ranks, tmp_path):
    done = leakscope("merge", str(ranks[0]), "--out", "all", folder=tmp_path)
    assert done.returncode == 1
    assert "There is nothing to merge with" in done.stderr
    assert not (tmp_path / "all").exists()
