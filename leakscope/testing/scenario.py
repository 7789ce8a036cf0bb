"""``find_growth``: a scenario repeated in rounds, and what grows with every call.

What analyses the censuses is imported only where something may grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from leakscope.model.documents import Growth
from leakscope.testing.heap_sampler import (
    ALLOW,
    STEPS,
    WARMUP,
    HeapSampler,
    KnownNames,
    Rounds,
    ScenarioCode,
    code_of,
    to_plan,
)


def find_growth(
    scenario: Callable[[], object],
    *,
    steps: int = STEPS,
    warmup: int = WARMUP,
    allow: str | float = ALLOW,
    ignore: str | Iterable[str] = (),
    project_root: str | Path | None = None,
) -> list[Growth]:
    """Call a scenario again and again and return what grows with every call, the fastest first.

    A clean scenario is called ``warmup + steps`` times, one that seems to grow ``warmup + 9 *
    steps`` times at most, in rounds between which garbage is collected. A path counts only if it
    grew in every round by about as much per call; what ends at a bound that it declares, such as an
    ``lru_cache`` or a deque, doesn't count. Seen are objects, tensors and arrays, wherever they
    lie and whoever holds them; memory that native code keeps for itself is not.

    Args:
        scenario: one round trip, called without arguments; what it returns is dropped, what it
            raises is passed on.
        steps: calls of a round, 20 by default. What leaks seldom, or fills a cache, takes
            more.
        warmup: calls before the first look, 3 by default.
        allow: bytes per call that may be left behind, as a number or as ``"4 KB"``; 0 by
            default.
        ignore: names or paths that may grow, such as ``"server.log*"``.
        project_root: folder of your own code, whose names and lines are reported; the working
            directory by default.

    Returns:
        What grows, each with its path, bytes per call, objects per call, holder, feeding line and
        kind; printed, each is a sentence. Empty where nothing does.

    Raises:
        LeakscopeError: an argument is out of its range.

    """
    plan = to_plan(steps, warmup, allow, ignore)
    root = Path.cwd() if project_root is None else Path(project_root).resolve()
    looker = HeapSampler(str(root), KnownNames(reach=ScenarioCode(code_of(scenario))))
    rounds = Rounds(looker, plan)
    try:
        with closing(iter(rounds)) as calls:
            for _ in calls:
                scenario()
        return growth_in(rounds)
    finally:
        # An exception that the scenario kept keeps this frame.
        rounds.forget()


def growth_in(rounds: Rounds) -> list[Growth]:
    """Return what grew in rounds that are over, beyond what their plan allows."""
    if not rounds.censuses:
        return []
    # Only here, so that a clean scenario costs no import of what analyses.
    from leakscope.testing.finding import find

    return find(rounds)
