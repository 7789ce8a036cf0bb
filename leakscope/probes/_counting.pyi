"""Counts the blocks that Python hands out, reads the collector's own count, and times collections
(``native/``).
"""

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

def watch_collections(starts: tuple[str, ...], parts: tuple[str, ...], /) -> bool:
    """Time collections from now on, from nought; return whether that is possible.

    Names of files that begin with one of ``starts``, or have one of ``parts``, are no user's.
    """

def unwatch_collections() -> None:
    """Time no more; what was added up can still be read."""

def mute_collections(flag: bool, /) -> bool:
    """Leave out what is collected from now on, or no more; return what held before."""

_Times = tuple[int, int, int]

def collections() -> tuple[_Times, _Times, _Times, _Times]:
    """Return count, nanoseconds and the longest of collections, since the last call in the latter.

    Those that the interpreter ran by itself, by generation; then those that were asked for.
    """

def collect_calls() -> list[tuple[str | None, int, int, int, int, int, int, int, int]]:
    """Return by line of the user's what calls of the collector took and brought.

    File and line, count, nanoseconds, the longest, objects that were found, before and after how
    many memory was read, bytes that these freed and the most that one of them did.
    """
