"""A recording judged as if its process had been alone: what ranks and workers are judged by."""

from __future__ import annotations

from dataclasses import replace

from leakscope.analysis.case import Case
from leakscope.analysis.culprits import find_culprits
from leakscope.analysis.known import Catalogue
from leakscope.analysis.search import Growth, search_growth
from leakscope.analysis.siblings import with_siblings_joined
from leakscope.model.report import Culprit
from leakscope.model.run import Recording, Run


def judge_alone(
    run: Run,
    recording: Recording,
    catalogue: Catalogue | None = None,
    *,
    ends_with_pass: bool = False,
) -> tuple[Case, Growth, list[Culprit]]:
    """Return the case of one recording, what grows in it, and its culprits, the worst first.

    Sources that only the first process of the run recorded are its sources too.
    ``ends_with_pass`` says that such processes live for one pass: what climbs in it is given back.
    """
    recording.sources = run.main.sources | recording.sources
    recording.titles = run.main.titles | recording.titles
    case = Case(run, recording, catalogue)
    growth = with_siblings_joined(case, search_growth(case))
    if ends_with_pass:
        growth.growers[:] = [
            replace(g, falls_back=True) if g.growth == "within" else g for g in growth.growers
        ]
    return case, growth, find_culprits(case, case.sources, growth.growers)
