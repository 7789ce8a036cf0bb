"""Find out why a training run's memory grows: what, who holds it, which line, what to change.

>>> import leakscope
>>> with leakscope.profile():       # or @leakscope.profile()
...     train()

>>> leakscope.heap.snapshot()       # or ask the heap yourself: what is big, and who holds it

>>> %load_ext leakscope             # or in a notebook: %%leakscope above a cell

>>> leakscope.find_growth(round_trip)   # or repeat something, and get what it leaves behind

>>> leakscope.cleanup.clear_memory()    # or clean up, and read what that really freed

For pytest, which would warn where the package is imported before it is: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from leakscope.model import __version__

if TYPE_CHECKING:
    from leakscope import cleanup, heap, notebook
    from leakscope.capture.scope import Scope, profile
    from leakscope.model.documents import Growth
    from leakscope.testing.scenario import find_growth

__all__ = [
    "Growth",
    "Scope",
    "__version__",
    "cleanup",
    "find_growth",
    "heap",
    "notebook",
    "profile",
]

_LAZY = {
    "Growth": "leakscope.model.documents",
    "Scope": "leakscope.capture.scope",
    "find_growth": "leakscope.testing.scenario",
    "profile": "leakscope.capture.scope",
}
_ROOMS = {"cleanup", "heap", "notebook"}


def __getattr__(name: str) -> Any:
    """Import what is heavier than this module only when it is requested."""
    if name in _ROOMS:
        return importlib.import_module(f"leakscope.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook ``%%leakscope`` and ``%leakscope``; IPython's ``%load_ext`` calls it."""
    from leakscope.notebook.magics import load_ipython_extension as load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
