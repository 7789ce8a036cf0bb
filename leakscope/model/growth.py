"""Growth: what a repeated round trip leaves behind, a little more of it each time."""

from __future__ import annotations

import msgspec

from leakscope.model.report import Excerpt
from leakscope.model.sizes import human_bytes, human_count

GROWTH_SCHEMA_VERSION = 1


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One path that grows with every call; printed, it is a sentence."""

    path: str
    """The full pattern from the root, such as ``test_cache·STORE.seen``."""
    holder: str
    """Who holds it, as a person would say it, such as ``test_cache.STORE.seen``."""
    type: str
    """Qualified type of what grows, such as ``list`` or ``torch.Tensor``."""
    kind: str
    """The type in general terms, such as ``list``, ``dict``, ``lru_cache`` or ``object``."""
    bytes_per_call: float
    """Bytes kept on the device, with all that they keep alive."""
    objects_per_call: float
    """Items that a container gains, or objects where there come to be more of them; 0 where what is
    there gets larger."""
    device: str = "host"
    """Where the bytes lie, such as ``host`` or ``cuda:0``."""
    fed_by: str = ""
    """The line that adds to it, as ``test_cache.py:12``; two with "or" between them where several
    may; empty where none is known."""
    feeding: list[str] = []
    """That line and others that may, likeliest first."""
    defined_at: str = ""
    """Where it was made, as ``file:line``; empty where that isn't known."""
    holds: list[str] = []
    """What it holds, the heaviest types first, such as ``Tensor float32 (256, 4) on cpu``."""
    advice: str = ""
    """What to change, in one phrase."""
    diff: str = ""
    """A change to the user's source that mends it, where its pattern is recognised."""
    excerpts: list[Excerpt] = []
    """The user's source around the lines that feed it."""

    @property
    def sentence(self) -> str:
        """What grows, how fast, and by which line."""
        place = "" if self.device == "host" else f" on {self.device}"
        fed = f", fed by {self.fed_by}" if self.fed_by else ""
        return f"{self.holder} grows by {human_bytes(self.bytes_per_call)} per call{place}{fed}"

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"<Growth: {self.sentence}; {human_count(self.objects_per_call)} objects per call>"


class GrowthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one scenario, as written to a file."""

    schema_version: int = GROWTH_SCHEMA_VERSION
    leakscope_version: str
    scenario: str
    """The test's id, or the name of the function that was repeated."""
    calls: int
    """How often it was called, warm-up included."""
    allow_bytes: float
    """What it may leave behind with each call."""
    growths: list[Growth]
