"""What trainers do besides recording: cleanups that report their gain, memory that is logged."""

from __future__ import annotations

from typing import Any, cast

import pytest

from leakscope.capture.frameworks.training import Training, Upkeep
from leakscope.cleanup import ClearedMemory
from leakscope.cleanup import clearing as cleanup


class Told:
    """Stands for a training that gets messages."""

    leads = True

    def __init__(self, *, is_allowed: bool = True, is_quiet: bool = False) -> None:
        self.is_allowed, self.is_quiet = is_allowed, is_quiet
        self.notes: list[str] = []

    def note(self, slug: str, sentence: str) -> None:
        self.notes.append(f"{slug}: {sentence}")

    def log_text(self, sentence: str) -> None:
        return None

    def draws_memory(self) -> None:
        return None


@pytest.fixture(autouse=True)
def cheap_cleanups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a cleanup find nothing at once."""
    monkeypatch.setattr(cleanup, "clear_memory", lambda _: ClearedMemory((), 0.0))


def upkeep_of(reported: Told, **given: Any) -> Upkeep:
    return Upkeep(cast("Training", reported), **given)


def steps(upkeep: Upkeep, count: int) -> list[dict[str, float]]:
    return [upkeep.step(number) for number in range(1, count + 1)]


def test_each_training_tells_the_gain_of_its_own_cleanups() -> None:
    reported = Told()
    upkeep = upkeep_of(reported, cleanup_every=2)
    for count in (4, 6):
        upkeep.begin()
        steps(upkeep, count)
        upkeep.end()
        upkeep.end()
    assert ["in 2 cleanups" in reported.notes[0], "in 3 cleanups" in reported.notes[1]] == [
        True
    ] * 2
    assert len(reported.notes) == 2


def test_a_training_that_begins_again_before_its_end_goes_on_counting() -> None:
    reported = Told()
    upkeep = upkeep_of(reported, cleanup_every=2)
    for count in (4, 6):
        upkeep.begin()
        steps(upkeep, count)
    upkeep.end()
    assert "in 5 cleanups" in reported.notes[0]


def test_a_training_without_a_step_has_nothing_to_tell() -> None:
    reported = Told()
    upkeep = upkeep_of(reported, cleanup_every=2)
    upkeep.begin()
    upkeep.end()
    assert reported.notes == []


def test_nothing_is_done_where_it_is_switched_off() -> None:
    reported = Told(is_allowed=False)
    upkeep = upkeep_of(reported, cleanup_every=1, log_every=1)
    upkeep.begin()
    assert steps(upkeep, 3) == [{}, {}, {}]
    upkeep.end()
    assert reported.notes == []


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_quiet_training_does_not_say_that_cleanups_gain_nothing(
    caplog: pytest.LogCaptureFixture, *, is_quiet: bool
) -> None:
    upkeep = upkeep_of(Told(is_quiet=is_quiet), cleanup_every=1)
    upkeep.begin()
    steps(upkeep, 6)
    assert ("gains nothing" in caplog.text) is not is_quiet
