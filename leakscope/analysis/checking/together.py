"""What a limit allows each culprit but not all of them: several slow leaks are a fast one.

Culprits share no byte, so their rates add up, by device: another device is other memory. Findings
may speak of a culprit's own bytes, so each is held against the limit by itself alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from leakscope.analysis.checking.limits import GrowthLimit
from leakscope.model.check import Checked, Standing
from leakscope.model.sizes import human_bytes


@dataclass(frozen=True)
class Together:
    """Culprits on one device that come to more than the limit, though each of them is within it."""

    members: frozenset[int]
    """By their index."""
    rate: float
    limit: GrowthLimit
    device: str

    @property
    def sentence(self) -> str:
        """How much they grow together."""
        where = "" if self.device == "host" else f" on {self.device}"
        return (
            f"{len(self.members)} culprits{where} that are each within {self.limit.text} grow by "
            f"{human_bytes(self.rate)} per {self.limit.unit} together"
        )


def allowed_alone(growths: Sequence[Checked]) -> list[int]:
    """Return the index of each culprit that the limit allows."""
    return [n for n, one in enumerate(growths) if one.path and one.standing is Standing.ALLOWED]


def too_much_together(
    members: Iterable[int],
    growths: Sequence[Checked],
    rates: Mapping[int, float],
    limit: GrowthLimit | None,
) -> list[Together]:
    """Return which of these culprits come to more than the limit, by device."""
    by_device: dict[str, list[int]] = {}
    for n in members:
        by_device.setdefault(growths[n].device, []).append(n)
    if limit is None:
        return []
    sums = {device: sum(rates[n] for n in found) for device, found in by_device.items()}
    return [
        Together(frozenset(found), sums[device], limit, device)
        for device, found in by_device.items()
        if sums[device] > limit.bytes_per_unit
    ]
