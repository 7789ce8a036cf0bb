"""Several recordings: each analysed as if its process had been alone, their culprits matched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import numpy as np

from leakscope.analysis.accounting.native import contents_of_growers
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import SearchResult, search_growth, with_siblings_joined
from leakscope.analysis.remedies.catalogue import Catalogue
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.culprits import find_culprits
from leakscope.analysis.verdict.severity import SEVERITY_ORDER
from leakscope.analysis.verdict.wording import listed
from leakscope.model.report import Culprit
from leakscope.model.run import Recording, Run
from leakscope.model.text import human_bytes

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
MOST_NAMED = 8
"""Ranks listed by number in a sentence."""
MOST_KEPT = 500
"""Culprits of which one is kept whole; beyond so many there is no reader."""


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> defaultdict[_Key, list[_Value]]:
    """Return the values of each key, in the order in which they come."""
    found: defaultdict[_Key, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


class MergedCulprits:
    """Takes in ranks one by one; of a culprit that ranks share it keeps the worst one's.

    Where it is alike in them, that of the rank is kept that grows most in all: so the parts of the
    growth that the first culprits make up are parts of the same growth.
    """

    def __init__(self, rank: int, own: list[Culprit]) -> None:
        """Begin with the culprits of the rank that the report is of, the worst first."""
        self._own_rank = rank
        self._own = {culprit.signature: culprit for culprit in own}
        self._by_signature = {culprit.signature: _RankCulprit(rank, culprit) for culprit in own}
        self._leader, self._grown = rank, 0.0
        self._impact: dict[str, float] = defaultdict(float)
        self._rates: dict[str, dict[int, float]] = defaultdict(dict)

    def add(self, rank: int, culprits: list[Culprit]) -> None:
        """Take in what grows in a rank, the worst first."""
        grown = max((c.gained_bytes / c.share for c in culprits if c.share > 0), default=0.0)
        if grown > (1 + policy.LITTLE_SHARE) * self._grown:
            self._leader, self._grown = rank, grown
        for culprit, impact in zip(culprits, _impacts(culprits), strict=True):
            key, new = culprit.signature, _RankCulprit(rank, culprit)
            if key not in self._by_signature and len(self._by_signature) >= MOST_KEPT:
                continue
            self._rates[key][rank] = culprit.bytes_per_unit
            self._impact[key] = max(self._impact[key], impact)
            old = self._by_signature.setdefault(key, new)
            is_alike = not new.is_worse_than(old) and not old.is_worse_than(new)
            is_first = rank == self._leader or (self._leader != old.rank and rank < old.rank)
            if new.is_worse_than(old) or (is_alike and is_first):
                self._by_signature[key] = new

    def rank_of(self, culprit: Culprit) -> int:
        """Return the rank of which a culprit is reported."""
        return self._by_signature[culprit.signature].rank

    def report_as(self, rank: int, own: list[Culprit]) -> None:
        """Report culprits from now on as another rank, already added, has them."""
        self._own_rank = rank
        self._own = {culprit.signature: culprit for culprit in own}

    def of(self, ranks: list[int]) -> list[Culprit]:
        """Return the culprits with the rates of all ranks, the worst first."""
        merged = []
        for key, entry in self._by_signature.items():
            own = self._own if entry.rank == self._own_rank else {}
            merged.append(with_rates(own.get(key, entry.culprit), self._rates[key], ranks))
        places = {key: place for place, key in enumerate(self._own)}
        merged.sort(
            key=lambda c: (
                SEVERITY_ORDER[c.severity],
                -self._impact[c.signature],
                places.get(c.signature, len(places)),
                c.signature,
            )
        )
        return [msgspec.structs.replace(c, rank=n) for n, c in enumerate(merged, 1)]


@dataclass(frozen=True)
class _RankCulprit:
    """A culprit as one rank has it."""

    rank: int
    culprit: Culprit

    def is_worse_than(self, other: _RankCulprit) -> bool:
        """Return whether more is lost to it in this rank, and not by little."""
        mine, theirs = self.culprit, other.culprit
        if mine.severity is not theirs.severity:
            return SEVERITY_ORDER[mine.severity] < SEVERITY_ORDER[theirs.severity]
        more, less = mine.gained_bytes, theirs.gained_bytes
        return more - less > policy.LITTLE_SHARE * more


def _impacts(culprits: list[Culprit]) -> list[float]:
    """Return what each comes to over the horizon, none more than those before it.

    Their order in a rank says more than their amounts: what follows from another stands behind it.
    """
    found: list[float] = []
    for culprit, before in zip(culprits, [None, *culprits], strict=False):
        goes_on = policy.HORIZON if culprit.growth == "across" else 1
        impact = float(culprit.gained_bytes * goes_on)
        alike = before is not None and before.severity is culprit.severity
        found.append(min(impact, found[-1]) if alike else impact)
    return found


def with_rates(culprit: Culprit, rates: dict[int, float], ranks: list[int]) -> Culprit:
    """Return a culprit with how fast it grows in which of all ranks."""
    return msgspec.structs.replace(
        culprit,
        sentence=f"{culprit.sentence} {_spread(rates, ranks, culprit.unit)}",
        rates_by_rank={str(rank): rate for rank, rate in sorted(rates.items())},
        in_ranks=_where(sorted(rates), rates, len(ranks)),
    )


def _where(growing: list[int], rates: dict[int, float], total: int) -> str:
    """Return in which ranks it grows at the reported rate; empty where it does so in all."""
    if len(growing) == total:
        low, high = min(rates.values()), max(rates.values())
        is_alike = high - low <= policy.LITTLE_SHARE * high
        return "" if is_alike else f"rank {max(rates, key=rates.__getitem__)}"
    if len(growing) > policy.FEWEST_READINGS:
        return f"{len(growing)} of {total} ranks"
    return f"rank{'s' * (len(growing) > 1)} {listed([str(rank) for rank in growing])}"


def _spread(rates: dict[int, float], ranks: list[int], unit: str) -> str:
    """Return the ranks in which something grows, and how far apart their rates are."""
    if len(rates) < len(ranks):
        return _only_in(sorted(rates), [rank for rank in ranks if rank not in rates])
    low, high = min(rates.values()), max(rates.values())
    if high - low <= policy.LITTLE_SHARE * high:
        return f"It grows alike in all {len(ranks)} ranks."
    most = max(rates, key=lambda rank: rates[rank])
    usual = human_bytes(float(np.median(list(rates.values()))))
    half = f", in half of them by no more than {usual}" if len(ranks) > MOST_NAMED else ""
    return (
        f"It grows in all {len(ranks)} ranks, by {human_bytes(low)} to {human_bytes(high)} per "
        f"{unit}{half}; most in rank {most}."
    )


def _only_in(growing: list[int], without: list[int]) -> str:
    total = len(growing) + len(without)
    if len(growing) <= MOST_NAMED:
        names = listed([*map(str, growing)])
        return f"It grows in rank{'s' * (len(growing) > 1)} {names} of {total} only."
    if len(without) <= MOST_NAMED:
        names = listed([*map(str, without)])
        return f"It grows in {len(growing)} of {total} ranks, not in {names}."
    return f"It grows in {len(growing)} of {total} ranks, the first of them rank {growing[0]}."


def with_sources_of_main(run: Run, recording: Recording) -> Recording:
    """Return a recording; sources that only the run's first process recorded are its own too."""
    recording.sources = run.main.sources | recording.sources
    recording.titles = run.main.titles | recording.titles
    return recording


def analyse_recording(
    run: Run,
    recording: Recording,
    catalogue: Catalogue | None = None,
    *,
    ends_with_pass: bool = False,
) -> tuple[RunContext, SearchResult, list[Culprit]]:
    """Return the case of one recording, what grows in it, and its culprits, the worst first.

    ``ends_with_pass`` says that such processes live for one pass: what climbs in it is given back.
    """
    case = RunContext(run, with_sources_of_main(run, recording), catalogue)
    growth = with_siblings_joined(case, search_growth(case))
    growth = replace(growth, native=contents_of_growers(case, growth.growers))
    if ends_with_pass:
        growth.growers[:] = [
            replace(grower, growth="within", falls_back=True) for grower in growth.growers
        ]
    slack = growth.terms.get("slack")
    return case, growth, find_culprits(case, growth.growers, growth.native, slack)
