"""Which rank a report tells of: the one whose memory ran out, grows worst, or differs."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.ending import OOM_KILLED, shortage_at_the_end
from leakscope.analysis.ranks.merged import MergedCulprits
from leakscope.model.rank import OddRank, RankMemory
from leakscope.model.report import Culprit, Severity
from leakscope.model.run import Recording


@dataclass(frozen=True)
class Chosen:
    """The rank to tell of where there are many, and why it is that one."""

    rank: int
    sentence: str


def worst_here(
    recordings: list[Recording], case: Case, merged: MergedCulprits, told: list[Culprit]
) -> Recording | None:
    """Return the rank to tell of where it is another one, of ranks whose recordings are here.

    The kernel may kill more ranks than the one that used up their memory: of those whose memory ran
    out it is the one in which the worst culprit grows.
    """
    own = case.recording.header.rank
    others = [one for one in recordings if one.header.rank != own]
    ranks = [case.recording, *others]
    ran_out = [one for one in ranks if shortage_at_the_end(case.run, one)]
    rank = _blamed(merged, told)
    blamed = [one for one in ran_out or ranks if one.header.rank == rank]
    chosen = next(iter([*blamed, *ran_out]), case.recording)
    return None if chosen is case.recording else chosen


def choose(
    case: Case,
    merged: MergedCulprits,
    told: list[Culprit],
    rows: list[RankMemory],
    odd: OddRank | None,
) -> Chosen | None:
    """Return the rank to tell of where it is another one than the case's, by what is kept of each.

    Where nothing grows that has a name, it is the one that differs by having more.
    """
    own = case.recording.header.rank
    blamed = _blamed(merged, told)
    ran_out = [row.rank for row in rows if row.ended == OOM_KILLED]
    if shortage_at_the_end(case.run, case.recording):
        ran_out.insert(0, own)
    if ran_out:
        rank = blamed if blamed in ran_out else own if own in ran_out else ran_out[0]
        why = "memory ran out there."
    elif blamed is not None:
        rank, why = blamed, f"{told[0].name} grows most there."
    elif odd is not None and odd.bytes > 0:
        rank, why = odd.rank, "it is the first that differs from the others."
    else:
        return None
    return None if rank == own else Chosen(rank, told_of(rank, len(rows), why))


def told_of(rank: int, count: int, why: str) -> str:
    """Return which of so many ranks the report is of."""
    return f"Ledger, timeline and phases are those of rank {rank} of {count}: {why}"


def _blamed(merged: MergedCulprits, told: list[Culprit]) -> int | None:
    """Return the rank as which the worst culprit is told, if one is more than a note."""
    grows = bool(told) and told[0].severity is not Severity.NOTE
    return merged.rank_of(told[0]) if grows else None
