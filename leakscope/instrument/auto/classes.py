"""Methods of torch's classes, wrapped for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from leakscope.model.interrupts import ours

F = TypeVar("F", bound=Callable[..., Any])
Method = Callable[..., Any]


class PatchedMethod:
    """A method of a class that is replaced until :meth:`remove`."""

    def __init__(self, owner: type, name: str, wrap: Callable[[Method], Method]) -> None:
        self._owner = owner
        self._name = name
        self._original = owner.__dict__[name]
        self._ours = wrap(self._original)
        setattr(owner, name, self._ours)

    def remove(self) -> None:
        """Put the original back, unless somebody has wrapped ours since: ours only passes on."""
        if self._owner.__dict__.get(self._name) is self._ours:
            setattr(self._owner, self._name, self._original)


def without_our_frame(error: BaseException) -> None:
    """Take the frame of the wrapper, the outermost one, off a traceback before it goes on."""
    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        error.__traceback__ = error.__traceback__.tb_next


def opaque(hook: F) -> F:
    """Return a hook that ``torch.compile`` calls as it is instead of looking into it.

    Where the compiler has broken off and Python goes on, it passes over the hook's own frame too,
    without counting it among those that it has compiled.
    """
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    try:
        dynamo: Any = sys.modules["torch._C"]._dynamo.eval_frame
        skip, go_on = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        dynamo.set_code_exec_strategy(hook.__code__, dynamo._FrameExecStrategy(skip, go_on))
    except ours(AttributeError, KeyError, TypeError):
        return hook  # another version of torch, or the library is another one
    return hook
