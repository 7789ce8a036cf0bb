"""The section on the cleaning calls that were tried, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.model.cure import Cure, Cures, Effect
from leakscope.report.sizes import Size, humane_duration, humane_number, size_of

EFFECTS = {
    Effect.HELPS: "helps",
    Effect.LITTLE: "helps little",
    Effect.USELESS: "cannot help",
    Effect.UNDECIDED: "too few trials",
}


@dataclass(frozen=True)
class CureRow:
    """One call over all its trials."""

    call: str
    helps: bool
    effect: str
    times: str
    took: str
    found: str
    host: Size
    devices: list[tuple[str, Size]]
    again: Size | None
    sentence: str


@dataclass(frozen=True)
class CuresView:
    """Which cleaning calls can help here and which can't."""

    sentence: str
    rows: list[CureRow]
    remarks: list[str]


def cures_view(cures: Cures | None) -> CuresView | None:
    """Return the section; None where nothing was tried."""
    if cures is None:
        return None
    return CuresView(cures.sentence, [_row(cure) for cure in cures.cures], cures.remarks)


def _row(cure: Cure) -> CureRow:
    return CureRow(
        call=cure.call,
        helps=cure.effect is Effect.HELPS,
        effect=EFFECTS[cure.effect],
        times=f"{cure.times:,}",
        took=humane_duration(cure.seconds),
        found="" if cure.objects is None else humane_number(cure.objects),
        host=size_of(cure.host_bytes),
        devices=[(name, size_of(size)) for name, size in cure.device_bytes.items()],
        again=size_of(cure.taken_again_bytes) if cure.taken_again_bytes else None,
        sentence=cure.sentence,
    )
