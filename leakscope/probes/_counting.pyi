"""Counts the blocks that Python hands out, and reads the collector's own count (``native/``)."""

from collections.abc import Callable

def start() -> None:
    """Count from now on."""

def stop() -> None:
    """Count no more, and have no function called."""

def counted() -> int:
    """Return how many blocks were handed out while it counted."""

def arm(more: int, function: Callable[[], object], /) -> None:
    """After so many more blocks have the main thread call a function, once."""

def disarm() -> None:
    """Have no function called."""

def long_lived() -> tuple[int, int] | None:
    """Return what the next collection of all generations depends on; None where nothing tells.

    The objects that became old since the last one, and those that survived it: the next one comes
    when the first are more than a fourth of the second.
    """
