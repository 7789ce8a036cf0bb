"""A method with something before and after it stays what it was for its caller and arguments."""

from __future__ import annotations

import traceback
import weakref
from typing import Any

import pytest

from leakscope.capture.torch_hooks.patching import surrounded


class Thing:
    """Something that a weak reference can follow."""


def fails(*args: object, **kwargs: object) -> None:
    raise ValueError("of the original")


def test_what_is_called_first_and_last_gets_arguments_result_and_error() -> None:
    calls: list[Any] = []

    def begin(*args: object, **kwargs: object) -> str:
        calls.append((args, kwargs))
        return "begun"

    def end(begun: str, error: BaseException | None) -> None:
        calls.append((begun, type(error)))

    assert surrounded(max, begin, end)(1, 2, key=abs) == 2
    with pytest.raises(ValueError, match="of the original"):
        surrounded(fails, begin, end)(3)
    assert calls == [
        ((1, 2), {"key": abs}),
        ("begun", type(None)),
        ((3,), {}),
        ("begun", ValueError),
    ]


def test_an_error_has_no_frame_of_ours_and_keeps_no_argument_once_its_frames_are_cleared() -> None:
    thing = Thing()
    known = weakref.ref(thing)
    call = surrounded(fails, lambda argument: argument, lambda begun, error: None)
    try:
        call(thing)
    except ValueError as error:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
        traceback.clear_frames(error.__traceback__)
        del thing
        assert names == ["fails"]
        assert known() is None
    else:
        pytest.fail("nothing was raised")
