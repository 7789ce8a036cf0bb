"""Workers of DataLoaders, as a report tells of them."""

from __future__ import annotations

import msgspec


class WorkerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a DataLoader, by its own recording."""

    loader: int
    """Number of the DataLoader in its process, from 1."""
    worker: int
    rank: int = 0
    pid: int
    generation: int = 0
    """How often its loader had started workers before."""
    start_method: str = ""
    batches: int
    """Fetched while it was recorded."""
    prefetch: int = 0
    """How many batches it may have loaded ahead."""
    batch_bytes: int | None = None
    """The largest of those that were looked at."""
    pss_bytes: int | None = None
    """Highest; shared pages are divided among those who map them."""
    private_first_bytes: int | None = None
    """Memory of its own at the first reading, and at the last."""
    private_last_bytes: int | None = None
    written_last_bytes: int | None = None
    """Of the last, pages that it wrote to: the kernel can't drop them and read them anew."""
    grows: list[str] = []
    """Names of what grows in it."""
    copies: list[str] = []
    """Names of what it inherited and copies by looking at it."""
