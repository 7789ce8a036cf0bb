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
