"""What pytest gathers of the test that is running is known, wherever it keeps it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import pytest

from leakscope.testing.heap_sampler import gathering, is_of_runner


def kept_under(hidden: list[object], *, wanted: Callable[[object], bool]) -> bool:
    return any(type(obj) is list and any(map(wanted, obj)) for obj in hidden)


@pytest.mark.filterwarnings("always")
def test_warnings_that_pytest_collects_are_known() -> None:
    warnings.warn("told to pytest", stacklevel=1)
    assert kept_under(gathering(), wanted=lambda item: "told to pytest" in str(item))


def test_what_was_logged_is_known() -> None:
    logging.getLogger("chatty").warning("logged for pytest")
    hidden = gathering()
    assert kept_under(hidden, wanted=lambda item: isinstance(item, logging.LogRecord))


def test_properties_of_the_running_test_are_known(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    record_property("seen", "yes")
    hidden = {id(obj) for obj in gathering()}
    assert {id(request.node.user_properties), id(request.node.stash)} <= hidden


def test_a_list_of_ones_own_warnings_is_not_the_runners() -> None:
    with warnings.catch_warnings(record=True) as mine:
        warnings.simplefilter("always")
        warnings.warn("told to the test", stacklevel=1)
        hidden = gathering()
    assert len(mine) == 1
    assert not any(obj is mine for obj in hidden)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("_pytest.runner.call()·item", True),
        ("__channelexec__.WorkerInteractor.run_one_test()·item", True),
        ("test_server·server", False),
    ],
)
def test_paths_of_the_runner_are_distinguished_from_those_of_tests(
    path: str, expected: bool
) -> None:
    assert is_of_runner(path) is expected
