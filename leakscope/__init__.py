"""Find out why a training run's memory grows: what, who holds it, which line, what to change.

>>> import leakscope
>>> with leakscope.profile():       # or @leakscope.profile()
...     train()

>>> leakscope.heap.snapshot()       # or ask the heap yourself: what is big, and who holds it

>>> %load_ext leakscope             # or in a notebook: %%leakscope above a cell

>>> leakscope.cleanup.clear_memory()    # or clean up, and read what that really freed
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakscope import cleanup, heap, notebook
    from leakscope.instrument.scope import Scope, profile

__all__ = ["Scope", "__version__", "cleanup", "heap", "notebook", "profile"]

__version__ = "0.1.0"

_LAZY = {"profile", "Scope"}
_ROOMS = {"cleanup", "heap", "notebook"}


def __getattr__(name: str) -> Any:
    """Import what is heavier than this module only when it is asked for."""
    if name in _ROOMS:
        return importlib.import_module(f"leakscope.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from leakscope.instrument import scope

    value = globals()[name] = getattr(scope, name)
    return value


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook ``%%leakscope`` and ``%leakscope``; IPython's ``%load_ext`` calls it."""
    from leakscope.notebook.magics import load_ipython_extension as load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
