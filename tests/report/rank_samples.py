"""Reports about many ranks, written by hand."""

from __future__ import annotations

import msgspec
from report_samples import leaking

from leakscope.model.report import RankMemory, Report

MIB = 1 << 20


def rank(number: int, **fields: object) -> RankMemory:
    shown = {
        "host": "node",
        "pid": 100 + number,
        "steps": 500,
        "first_bytes": 300 * MIB,
        "peak_bytes": (400 + number) * MIB,
        "last_bytes": (390 + number) * MIB,
        "unit": "step",
        "ended": "completed",
    }
    return RankMemory(rank=number, **{**shown, **fields})  # type: ignore[arg-type]


def report_of(ranks: list[RankMemory], **fields: object) -> Report:
    report = leaking()
    rates = {str(item.rank): 1024.0 * (item.rank + 1) for item in ranks}
    culprits = [msgspec.structs.replace(report.culprits[0], rates_by_rank=rates)]
    return msgspec.structs.replace(report, ranks=ranks, culprits=culprits, **fields)
