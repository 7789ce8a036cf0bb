"""A sampled profile of native allocations (``native/sampling.h``)."""

from typing import Any

Row = tuple[int, tuple[int, ...], tuple[int, ...], int, int, float, float, float]
"""Kind, sites, return addresses, samples, their bytes, estimate, its part by chance, variance."""

def start(interval: float, seed: int, origins: list[tuple[str, int]], /) -> str | None:
    """Sample from now on; return why it can't be done, or None."""

def stop() -> None:
    """Sample no more, and forget what was sampled."""

def update(all: bool, /) -> None:  # noqa: A002
    """Take in libraries that were loaded since; ``all``: look through every one again."""

def live() -> list[Row]:
    """Return what is live, by stack."""

def start_blocks(interval: float, /) -> bool:
    """Sample blocks of Python's own allocators too; return whether it could be done."""

def stop_blocks() -> None:
    """Sample them no more, and forget what was sampled."""

def blocks_of(
    objects: list[object], addresses: list[int], deque: type, /
) -> list[tuple[int, tuple[int, ...], float, float]]:
    """Return the sampled blocks of objects, and of malloc's at addresses: whether it is a table of
    a container, sites, bytes, blocks.
    """

def blocks_live() -> dict[tuple[int, ...], tuple[int, float, float]]:
    """Return samples, bytes and variance of live small blocks, by the sites of their lines."""

def place(site: int, /) -> tuple[str, int, str, int] | None:
    """Return file, line, function and origin of a site."""

def libraries() -> list[tuple[str, int, int, int]]:
    """Return path, base, begin and end of each library that is loaded."""

def symbols(path: str, offsets: list[int], /) -> dict[int, str | None]:
    """Return the functions at these offsets of a file."""

def state() -> dict[str, Any]:
    """Return how it goes: counts, own bytes, what was relocated."""

def fault() -> None:
    """Have the next sample fault, for tests."""
