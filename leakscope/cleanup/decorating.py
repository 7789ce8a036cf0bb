"""Functions whose every call runs inside something, tried again while that swallows what failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def decorated(
    function: Callable[P, T], contexts: Callable[[], Iterable[AbstractContextManager[Any]]]
) -> Callable[P, T]:
    """Return the function run inside the first context that doesn't swallow its exception.

    Coroutine functions are awaited inside it.

    Raises:
        TypeError: it is a generator function, whose body runs long after the call, or no function.

    """
    if not callable(function):
        raise TypeError(f"Only a function can be decorated, not {type(function).__name__}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator function: its body runs after the call. "
            "Decorate the function that uses it up."
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: P.args, **kwargs: P.kwargs) -> Any:
            for context in contexts():
                with context:
                    return await function(*args, **kwargs)
            return None

        return cast("Callable[P, T]", awaiting)

    @functools.wraps(function)
    def calling(*args: P.args, **kwargs: P.kwargs) -> T:
        for context in contexts():
            with context:
                return function(*args, **kwargs)
        raise AssertionError("the last context let its exception pass")

    return calling
