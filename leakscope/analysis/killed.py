"""Ranks that a signal ended, as their supervisors saw it: what others end by may follow from that.

A launcher that tears the others down asks them to end; what was asked for is no cause of anything.
"""

from __future__ import annotations

import signal

from leakscope.analysis.ending import BESIDE, OOM_KILLED, how_it_ended
from leakscope.analysis.wording import listed
from leakscope.model.run import ASKED_TO_END, Recording, Run

MOST_NAMED = 8


def how_all_ended(run: Run, recording: Recording) -> str:
    """Return how the program ended, other ranks that were killed before the first one's ending."""
    how, killed = how_it_ended(run, recording), killed_ranks(run)
    killed.pop(recording.header.rank, None)
    if not killed:
        return how
    return f"{_told(killed)}{BESIDE}{recording.header.rank}: {how}"


def killed_notes(run: Run) -> tuple[str, ...]:
    """Return a sentence on the other ranks that a signal ended, if some were.

    Those that the kernel killed for memory are told as such elsewhere.
    """
    killed = {rank: how for rank, how in killed_ranks(run).items() if how != OOM_KILLED}
    if not killed:
        return ()
    told = _told(killed)
    return (f"{told[:1].upper()}{told[1:]}: what other ranks ended by may follow from that.",)


def killed_ranks(run: Run) -> dict[int, str]:
    """Return the ranks, the first one's aside, that a signal ended which nobody ends a program by,
    each with its name or with the kernel's reason.
    """
    if not run.recordings:
        return {}
    first = run.main.header
    return {
        rank: how
        for (attempt, rank), outcome in sorted(run.outcomes.items())
        if attempt == first.attempt and rank != first.rank
        if (how := OOM_KILLED if outcome.get("oom_killed") else _name(outcome.get("signal")))
    }


def named_ranks(ranks: list[int]) -> str:
    """Return ``rank 1, rank 2 and 5 more``."""
    left = len(ranks) - MOST_NAMED
    named = [f"rank {rank}" for rank in ranks[:MOST_NAMED]]
    return listed([*named, *([f"{left:,} more"] if left > 0 else [])])


def _told(killed: dict[int, str]) -> str:
    starved = [rank for rank, how in killed.items() if how == OOM_KILLED]
    struck = [rank for rank in killed if rank not in starved]
    names = " and ".join(sorted({killed[rank] for rank in struck}))
    told = [f"{named_ranks(starved)} {_were(starved)} {OOM_KILLED}"] if starved else []
    told += [f"{named_ranks(struck)} {_were(struck)} killed ({names})"] if struck else []
    return listed(told)


def _were(ranks: list[int]) -> str:
    return "was" if len(ranks) == 1 else "were"


def _name(number: str | int | None) -> str:
    if not isinstance(number, int) or number in ASKED_TO_END:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
