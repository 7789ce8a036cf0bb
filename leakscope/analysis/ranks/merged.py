"""Culprits of several ranks, matched by signature, with the rate of each rank."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from leakscope.analysis.culprits import ORDER
from leakscope.analysis.wording import listed
from leakscope.model.report import Culprit
from leakscope.model.sizes import human_bytes

SPREAD = 0.1
"""Rates that differ by less than this part are alike."""
MOST_NAMED = 8
"""Ranks told by number in a sentence."""
MOST_KEPT = 500
"""Culprits of which one is kept whole; beyond so many there is no reader."""


class MergedCulprits:
    """Takes in ranks one by one; of culprits that ranks share it keeps the lowest one's."""

    def __init__(self, own: list[Culprit]) -> None:
        self._place = {culprit.signature: place for place, culprit in enumerate(own)}
        self._first: dict[str, Culprit] = {culprit.signature: culprit for culprit in own}
        self._told_by: dict[str, int] = dict.fromkeys(self._first, -1)
        self._rates: dict[str, dict[int, float]] = defaultdict(dict)

    def add(self, rank: int, culprits: list[Culprit]) -> None:
        """Take in what grows in a rank."""
        for culprit in culprits:
            if culprit.signature in self._first or len(self._first) < MOST_KEPT:
                self._rates[culprit.signature][rank] = culprit.bytes_per_unit
                if rank < self._told_by.get(culprit.signature, rank + 1):
                    self._first[culprit.signature] = culprit
                    self._told_by[culprit.signature] = rank

    def of(self, ranks: list[int]) -> list[Culprit]:
        """Return the culprits with the rates of all ranks, the worst first."""
        own = len(self._place)
        merged = [_with_rates(c, self._rates[key], ranks) for key, c in self._first.items()]
        merged.sort(
            key=lambda c: (
                ORDER[c.severity],
                self._place.get(c.signature, own),
                -c.total_bytes,
                c.signature,
            )
        )
        return [msgspec.structs.replace(c, rank=n) for n, c in enumerate(merged, 1)]


def _with_rates(culprit: Culprit, rates: dict[int, float], ranks: list[int]) -> Culprit:
    sentence = f"{culprit.sentence} {_spread(rates, ranks, culprit.unit)}"
    by_rank = {str(rank): rate for rank, rate in sorted(rates.items())}
    return msgspec.structs.replace(culprit, rates_by_rank=by_rank, sentence=sentence)


def _spread(rates: dict[int, float], ranks: list[int], unit: str) -> str:
    """Return in which ranks something grows, and how far their rates lie apart."""
    if len(rates) < len(ranks):
        return _only_in(sorted(rates), [rank for rank in ranks if rank not in rates])
    low, high = min(rates.values()), max(rates.values())
    if high - low <= SPREAD * high:
        return f"It grows alike in all {len(ranks)} ranks."
    most = max(rates, key=lambda rank: rates[rank])
    if len(ranks) <= MOST_NAMED:
        return (
            f"It grows in all {len(ranks)} ranks, by {human_bytes(low)} to {human_bytes(high)} per "
            f"{unit}; most in rank {most}."
        )
    usual = human_bytes(float(np.median(list(rates.values()))))
    return (
        f"It grows in all {len(ranks)} ranks, by {human_bytes(low)} to {human_bytes(high)} per "
        f"{unit}, in half of them by no more than {usual}; most in rank {most}."
    )


def _only_in(growing: list[int], without: list[int]) -> str:
    total = len(growing) + len(without)
    if len(growing) <= MOST_NAMED:
        names = listed([str(rank) for rank in growing])
        return f"It grows in rank{'s' * (len(growing) > 1)} {names} of {total} only."
    if len(without) <= MOST_NAMED:
        names = listed([str(rank) for rank in without])
        return f"It grows in {len(growing)} of {total} ranks, not in {names}."
    return f"It grows in {len(growing)} of {total} ranks, the first of them rank {growing[0]}."
