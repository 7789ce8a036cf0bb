"""How a program ended, as text and as a clause."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakscope.analysis.processes.endings import Ending, how_all_ended
from leakscope.model.record import EndRecord, HeaderRecord, RunManifest
from leakscope.model.run import Recording, Run

CAUGHT = "OSError: Caught OSError in DataLoader worker process 0"
TRACEBACK = 'Original Traceback (most recent call last):\n  File "worker.py", line 374\n    ^^^^\n'


def ending(end: EndRecord | None, outcome: dict[str, str | int] | None = None) -> Ending:
    recording = Recording(HeaderRecord(), end=end, goes_on=False)
    run = Run(Path(), RunManifest(run_id="r"), [recording], outcome=outcome or {})
    return how_all_ended(run, recording)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("ValueError: no such batch", "ValueError: no such batch"),
        ("RuntimeError: sizes differ\n  in fc.weight\n", "RuntimeError: sizes differ"),
        (f"{CAUGHT}.\n{TRACEBACK}OSError: truncated\n", f"{CAUGHT}: OSError: truncated"),
        (f'{CAUGHT}.\n{TRACEBACK}  File "cut/sho', f"{CAUGHT}."),
        ("", "an exception"),
    ],
    ids=["one line", "several", "of a worker", "cut short", "without a message"],
)
def test_an_exception_is_given_in_a_line(message: str, text: str) -> None:
    ended = ending(EndRecord(status="exception", exception=message))
    assert ended.clause == f"the program ended by {text}"
    assert not ended.is_regular


@pytest.mark.parametrize(
    ("end", "outcome", "clause"),
    [
        (EndRecord(status="exit", exit_code=3), {}, "the program ended with exit code 3"),
        (EndRecord(status="interrupted", exit_code=130), {}, "the program was interrupted"),
        (
            None,
            {"exit_code": 3},
            "the program ended with exit code 3 (no closing record)",
        ),
        (None, {"signal": 9}, "the run was killed by SIGKILL"),
        (None, {"signal": 11}, "the run was killed by signal 11"),
        (
            None,
            {"oom_killed": 1},
            "the run was killed by the kernel's out-of-memory killer",
        ),
        (None, {}, "the run was killed (no closing record)"),
    ],
)
def test_what_is_no_plain_end_has_a_clause(
    end: EndRecord | None, outcome: dict[str, str | int], clause: str
) -> None:
    ended = ending(end, outcome)
    assert ended.clause == clause
    assert not ended.is_regular


@pytest.mark.parametrize(
    "end",
    [
        EndRecord(status="completed"),
        EndRecord(status="detached"),
        EndRecord(status="ended"),
        EndRecord(status="exit", exit_code=0),
    ],
)
def test_a_program_that_just_ended_has_none(end: EndRecord) -> None:
    ended = ending(end)
    assert not ended.clause
    assert ended.is_regular


def test_ranks_that_were_killed_come_before_how_the_first_one_ended() -> None:
    first = Recording(
        HeaderRecord(world_size=2),
        end=EndRecord(status="exception", exception="Lost"),
        goes_on=False,
    )
    run = Run(Path(), RunManifest(run_id="r"), [first], outcomes={(0, 1): {"signal": 9}})
    ended = how_all_ended(run, first)
    assert ended.text == "rank 1 was killed (SIGKILL); rank 0: exception: Lost"
    assert ended.clause == "rank 1 was killed (SIGKILL); then rank 0 ended by Lost"
