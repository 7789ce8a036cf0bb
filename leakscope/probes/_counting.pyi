"""Counts the blocks that Python hands out (``native/counting.c``)."""

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
