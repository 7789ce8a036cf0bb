"""Where a culprit is decided: what grows with the work, goes on growing, and is not excluded.

- ``policy``: every number by which a verdict is made, with unit and source.
- ``model``: the growth model, one function for every series: ``judge_growth``.
- ``shape``: what is kept of a series, the pieces that fit it, its slope and its tail.
- ``rows``: rows of the census as series, across phases and within one.
- ``exclusions``: the ordered rules for what grows and yet is no leak.
- ``search``: from all rows to the growers at their accumulation points: ``search_growth``.

``accounting.terms`` judges by the same model what has no name, ``findings.gauge_rules`` what is
only counted. ``verdict.culprits`` ranks what ``search`` found, ``verdict.severity`` grades it, and
``verdict.headline.verdict_of`` draws the verdict.
"""

from __future__ import annotations

from leakscope.analysis.growth.model import judge, judge_growth, kept_in_tail, part_of
from leakscope.analysis.growth.shape import theil_sen

__all__ = ["judge", "judge_growth", "kept_in_tail", "part_of", "theil_sen"]
