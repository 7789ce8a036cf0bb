"""Native allocations: which library, which function and which line of Python have them live."""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from leakscope.model.numbers import Whole

_Z = 1.959964
"""Of the normal distribution, for intervals that hold 95 % of what may be true."""


class NativeKind(Enum):
    """How memory was asked for."""

    BLOCK = "block"
    """``malloc`` and its like."""
    MAPPING = "mapping"
    """``mmap``: private memory that may be written, neither files nor reserved addresses."""


class NativeOwner(Enum):
    """Who keeps books of such memory: what others count as well is counted once in a ledger."""

    LIBRARY = "library"
    """Nobody but the library itself."""
    INTERPRETER = "interpreter"
    """Python: blocks of its objects beyond 512 bytes, and the arenas of smaller ones."""
    TENSOR = "tensor"
    """torch: data of tensors on the host."""
    ARRAY = "array"
    """numpy: data of arrays."""
    LEAKSCOPE = "leakscope"


class NativeSite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Live native memory that one function allocated for one line of the user's."""

    library: str
    """Name of the file; empty where the library was unloaded."""
    function: str = ""
    """Without arguments; ``+0x1a2b`` in the library where there is no symbol."""
    file: str = ""
    """The innermost line of the user's below which it was allocated; else the innermost of all."""
    line: Whole = 0
    caller: str = ""
    """The Python function of this line."""
    kind: NativeKind = NativeKind.BLOCK
    owner: NativeOwner = NativeOwner.LIBRARY
    bytes: Whole
    """An unbiased estimate of what is live."""
    samples: Whole
    """Live blocks that it rests on."""
    chance_bytes: Whole = 0
    """The part of the estimate that chance decides; 0 where every block is so large that it is
    sampled."""
    deviation_bytes: Whole = 0
    """Standard deviation of the estimate."""
    stack: list[str] = []
    """Functions of the largest group of samples, innermost first, as ``library!function``. In a
    recording a row has them the first time alone."""

    @property
    def interval(self) -> tuple[int, int]:
        """Bytes that are live, with 95 % confidence: from, to."""
        return interval_of(self.bytes, self.chance_bytes, self.deviation_bytes)


def interval_of(estimate: float, chance: float, deviation: float) -> tuple[int, int]:
    """Return between which bytes the truth lies, with 95 % confidence.

    The gamma interval for weighted sums of rare events (Fay and Feuer 1997; with the mean weight,
    Tiwari et al. 2006), for the part of the estimate that chance decides.
    """
    if deviation <= 0 or chance <= 0:
        return round(estimate), round(estimate)
    certain, variance = max(estimate - chance, 0.0), deviation**2
    weight = variance / chance
    events = chance / weight
    low = certain + weight * _gamma_quantile(events, -_Z)
    high = certain + weight * _gamma_quantile(events + 1, _Z)
    return round(low), round(high)


def none_seen(interval: float) -> int:
    """Return below how many bytes that lies, with 95 % confidence, of which no sample is live."""
    return round(interval * _gamma_quantile(1.0, _Z))


def _gamma_quantile(shape: float, z: float) -> float:
    """Return a quantile of a gamma distribution, by Wilson and Hilferty's approximation."""
    cube = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return float(shape * max(cube, 0.0) ** 3)
