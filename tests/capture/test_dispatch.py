"""The way into a session: what events that fail do to those that come after them."""

from __future__ import annotations

import pytest

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import FAULTS_ALLOWED, EventDispatcher, Guard


@pytest.fixture
def reports() -> list[tuple[str, str, bool]]:
    return []


@pytest.fixture
def gate(reports: list[tuple[str, str, bool]], monkeypatch: pytest.MonkeyPatch) -> EventDispatcher:
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    gate = EventDispatcher(
        Guard(lambda part, message, is_off: reports.append((part, message, is_off))), Costs()
    )
    gate.open()
    return gate


def fail(error: Exception) -> None:
    raise error


def test_events_that_fail_are_reported_and_in_the_end_ignored(
    gate: EventDispatcher, reports: list[tuple[str, str, bool]]
) -> None:
    for _ in range(FAULTS_ALLOWED + 2):
        assert gate.dispatch(fail, ValueError("ours")) is None
    assert [is_off for _, _, is_off in reports] == [False] * (FAULTS_ALLOWED - 1) + [True]
    assert not gate.is_open


def test_a_program_without_memory_is_followed_until_it_has_some_again(
    gate: EventDispatcher, reports: list[tuple[str, str, bool]]
) -> None:
    for _ in range(100):
        assert gate.dispatch(fail, MemoryError()) is None
    assert [is_off for _, _, is_off in reports] == [False] * FAULTS_ALLOWED
    assert gate.dispatch(lambda: "counted") == "counted"


@pytest.mark.parametrize(("error", "goes_on"), [(MemoryError(), True), (ValueError(), False)])
def test_a_part_that_finds_no_memory_is_not_switched_off(
    error: Exception, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    reported: list[bool] = []
    guard = Guard(lambda part, message, is_off: reported.append(is_off))
    for _ in range(20):
        assert guard.call("census", "nothing", fail, error) == "nothing"
    assert guard.allows("census") is goes_on
    assert guard.call("census", "nothing", lambda: "taken") == ("taken" if goes_on else "nothing")
    assert len(reported) == FAULTS_ALLOWED


def test_a_report_that_finds_no_memory_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    reported: list[str] = []

    def report(part: str, message: str, is_off: bool) -> None:
        reported.append(message)
        if len(reported) == 1:
            raise MemoryError

    guard = Guard(report)
    guard.fault("probe", ValueError("first"))
    guard.fault("probe", ValueError("second"))
    assert [message.partition(" (")[0] for message in reported] == [
        "ValueError: first",
        "ValueError: second",
    ]
