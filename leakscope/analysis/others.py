"""Which other processes of a run are worth a look at what their memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from leakscope.analysis.case import Case
from leakscope.analysis.ranks import MANY, Ranks, ranks_here
from leakscope.analysis.workers import Workers
from leakscope.model.report import Culprit
from leakscope.model.run import Recording, Run


def other_cases(
    case: Case,
    culprits: Sequence[Culprit],
    ranks: Ranks,
    workers: Workers,
    read: Callable[[int], Recording | None],
) -> Iterator[Case]:
    """Yield those as which culprits are told, the worst first, then other ranks and workers.

    Nothing is read or counted for one that nobody asks for.

    Args:
        case: of the process that the report tells of.
        culprits: all of the report.
        ranks: what was concluded of the ranks.
        workers: what was concluded of the workers.
        read: returns the recording of a rank, None where it can't be read.

    """
    known = {case.recording.header.rank}
    for culprit in culprits:
        if culprit.workers:
            if culprit.signature in workers.tellers:
                yield workers.tellers[culprit.signature]
        elif ranks.merged is not None and (rank := ranks.merged.rank_of(culprit)) not in known:
            known.add(rank)
            recording = read(rank)
            if recording is not None:
                yield Case(case.run, recording, case.catalogue)
    for recording in _to_compare_with(case.run, len(ranks.rows)):
        if recording.header.rank not in known:
            yield Case(case.run, recording, case.catalogue)
    yield from workers.heaviest


def _to_compare_with(run: Run, ranks: int) -> list[Recording]:
    """Return ranks besides those that are told of: all of few, of many the first alone."""
    here = ranks_here(run)
    return here if ranks <= MANY else [one for one in here if one is run.main]
