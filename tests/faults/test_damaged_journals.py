"""A journal of a real run, cut anywhere or with bits flipped: what can be read is reported."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import fault_runs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leakscope.analysis import analyse
from leakscope.model.errors import NoRunError
from leakscope.model.record import BoundaryRecord
from leakscope.model.report import Report
from leakscope.recording import open_run
from leakscope.recording.format import JournalFrame, decode_record, read_frames
from leakscope.report import render_html, render_json, render_text

PROGRAM = """
import leakscope
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(5)):
        for step in scope.steps(range(6)):
            kept.append(bytes(200_000))
        with scope.phase("validation"):
            scope.mark("inside")
"""
READABLE = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    ended = fault_runs.recorded(PROGRAM, folder, "--budget", "100%", "--no-report", "-q")
    assert ended.code == 0, ended.err
    return folder / "run"


@pytest.fixture(scope="module")
def journal(run: Path) -> bytes:
    return next(run.glob("*.journal")).read_bytes()


@pytest.fixture(scope="module")
def damaged(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, whose journal the tests rewrite."""
    copy = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(run, copy)
    return copy


def intact(data: bytes, folder: Path) -> list[int]:
    """Return the boundaries whose frames are whole, and write the journal."""
    path = next(folder.glob("*.journal"))
    path.write_bytes(data)
    with path.open("rb") as stream:
        frames = [piece for piece in read_frames(stream) if isinstance(piece, JournalFrame)]
    records = [decode_record(frame.payload) for frame in frames]
    return [record.boundary.index for record in records if isinstance(record, BoundaryRecord)]


def reported(folder: Path) -> Report | None:
    """Return what every renderer could show; None where nothing at all can be read."""
    try:
        report = analyse(open_run(folder))
    except NoRunError as fault:
        assert str(fault).endswith(".")
        return None
    assert render_text(report)
    assert json.loads(render_json(report))
    return report


def assert_all_reported(data: bytes, whole: bytes, folder: Path) -> None:
    known = intact(data, folder)
    report = reported(folder)
    if report is None:
        assert not known
        return
    measured = [m.boundary.index for m in open_run(folder).main.measurements]
    assert measured == known
    if data != whole[: len(data)]:
        assert report.errors


@READABLE
@given(share=st.floats(0, 1))
def test_a_cut_anywhere_costs_what_came_after_it(
    share: float, journal: bytes, damaged: Path
) -> None:
    data = journal[: int(share * len(journal))]
    assert_all_reported(data, journal, damaged)


@READABLE
@given(bits=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12))
def test_flipped_bits_cost_the_records_they_lie_in(
    bits: list[float], journal: bytes, damaged: Path
) -> None:
    data = bytearray(journal)
    for place in {int(share * len(data) * 8) for share in bits}:
        data[place // 8] ^= 1 << place % 8
    before = intact(journal, damaged)
    after = intact(bytes(data), damaged)
    assert set(after) <= set(before)
    assert len(after) >= len(before) - len(bits)
    assert_all_reported(bytes(data), journal, damaged)


@READABLE
@given(seed=st.integers(0, 2**32), pieces=st.integers(2, 12))
def test_pieces_in_any_order_and_noise_between_are_read(
    seed: int, pieces: int, journal: bytes, damaged: Path
) -> None:
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(journal)) for _ in range(pieces - 1))
    parts = [journal[a:b] for a, b in zip([0, *cuts], [*cuts, len(journal)], strict=True)]
    chance.shuffle(parts)
    data = chance.randbytes(30).join(parts)
    assert intact(data, damaged) is not None
    reported(damaged)


@pytest.mark.slow
def test_around_the_edges_of_every_record_a_cut_costs_that_record(
    run: Path, journal: bytes, damaged: Path
) -> None:
    with next(run.glob("*.journal")).open("rb") as stream:
        edges = [piece.offset for piece in read_frames(stream)]
    for edge in edges:
        for length in (edge - 1, edge, edge + 1, edge + 4, edge + 13, edge + 20):
            known = intact(journal[: max(0, length)], damaged)
            try:
                recording = open_run(damaged).main
            except NoRunError:
                assert not known
                continue
            assert [m.boundary.index for m in recording.measurements] == known
            assert len(recording.damage) <= 2, "the record, and a census without its boundary"


@pytest.mark.parametrize(
    "fault", fault_runs.mostly_slow(["cut", "flipped", "zeroed", "emptied"], "cut", "emptied")
)
def test_the_command_says_what_it_could_not_read(
    fault: str, journal: bytes, damaged: Path, tmp_path: Path
) -> None:
    middle = len(journal) // 2
    data = {
        "cut": journal[: middle + 3],
        "flipped": journal[:middle] + bytes([journal[middle] ^ 0x10]) + journal[middle + 1 :],
        "zeroed": journal[:middle] + bytes(len(journal) - middle),
        "emptied": b"",
    }[fault]
    known = intact(data, damaged)
    shutil.copytree(damaged, tmp_path / "run")
    ended = fault_runs.leakscope("report", "run", folder=tmp_path)
    fault_runs.assert_no_traceback_of_ours(ended)
    if fault == "emptied":
        assert ended.code == 1
        assert ended.err.count("\n") == 1
        assert "the file is empty" in ended.err
        return
    assert ended.code == 0
    report = fault_runs.report_of(tmp_path)
    assert known
    assert ".journal@" in fault_runs.problems(report)
    assert ".journal@" in (tmp_path / "run" / "report.html").read_text()
    assert render_html(analyse(open_run(tmp_path / "run")))
