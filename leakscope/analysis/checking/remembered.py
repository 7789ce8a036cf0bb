"""Which entry of a baseline remembers what grows: the one of its signature, else of its likeness.

A signature changes with every name on the way from the root: where a variable was renamed or a loop
was moved into a function, name and nature tell, as they do between two runs. What grows for good
and what a phase gives back stay two things, and so do workers and the process itself; a finding
must keep its title, which names what it speaks of.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from leakscope.analysis.comparing.matching import Likeness, Traits, by_name, by_nature, match
from leakscope.analysis.ending import ENDINGS
from leakscope.model.check import Baseline, Checked, Known, Standing


def entries_of(growths: Sequence[Checked], baseline: Baseline) -> list[Known | None]:
    """Return what the baseline has of each; None where it has nothing.

    An entry of another signature excuses one thing at most, and only where it is free: nothing in
    the run has its own.
    """
    own = {known.key: known for known in reversed(baseline.culprits)}
    found = [own.get(one.key) for one in growths]
    here = {one.key for one in growths}
    strangers = [n for n, one in enumerate(growths) if _is_sought(one) and found[n] is None]
    free = [known for known in baseline.culprits if known.key not in here and known.kind]
    for in_workers in (False, True):
        left = [n for n in strangers if growths[n].in_workers is in_workers]
        right = [known for known in free if known.in_workers is in_workers]
        likenesses = (_alike(by_name), _alike(by_nature))
        partners = match(
            [_traits_of(growths[n]) for n in left], [*map(_traits_of, right)], likenesses
        )
        for index, partner in partners.items():
            found[left[index]] = right[partner]
    return found


def _is_sought(one: Checked) -> bool:
    return one.standing is Standing.FAILED and one.kind not in ENDINGS


def _alike(likeness: Likeness) -> Likeness:
    def of(one: Traits) -> Hashable:
        found = likeness(one)
        return found and (found, one.growth, one.is_finding and one.name)

    return of


def _traits_of(one: Checked | Known) -> Traits:
    return Traits(
        signature=one.signature,
        name=one.name,
        kind=one.kind,
        type=one.type,
        growth=one.growth,
        device=one.device,
        phase=one.phase,
        is_finding=not one.path,
    )
