"""Calls back before functions that the main module called lose their variables.

Without functions from Python 3.12 on (``native/returning.c``).
"""

from collections.abc import Callable
from typing import Any

def watch(
    callback: Callable[[], object],
    main: dict[str, Any],
    through: tuple[dict[str, Any], ...],
    seconds: float,
    calls: int,
    foreign: int,
    /,
) -> bool:
    """Call back as functions return that the main module called, their frame on the stack.

    Functions of the namespaces in ``through`` are no work of the program's. A call that took less
    than so many ``seconds`` is not told; after so many ``calls``, or so many of other threads, no
    more are looked at. Return False, with nothing changed, where another evaluator is installed.
    """

def stop() -> None:
    """Call back no more."""
