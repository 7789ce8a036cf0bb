"""Programs mixed at random of a leak or none and of what healthy programs do besides.

The truth of each is known by how it was made. A leak of 25 MiB or more is never called clean, and
no healthy program is accused of one, wherever the looks lie.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest
from synthetic_runs import KIB, MIB, PER, Program, Size, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.report import RunVerdict, Severity

SEEDS = range(120)
LEAK = "Trainer.history"


@dataclass
class Mixture:
    """A program, and what its C heap has in use by its parts."""

    program: Program
    chance: random.Random
    in_use: list[Size] = field(default_factory=list)
    leaks: str = ""
    """``named`` or ``native``; empty: it doesn't."""

    @property
    def steps(self) -> int:
        """How many steps it makes."""
        return self.program.epochs * self.program.steps

    def add(self, size: Size) -> None:
        """Add memory that no census sees."""
        self.program.swell(size)
        self.in_use.append(size)


def mixture(seed: int) -> Mixture:
    """Return a program of some parts; the same for the same seed."""
    chance = random.Random(seed)
    program = Program(
        epochs=chance.choice([4, 5, 6, 8, 12, 20]),
        steps=chance.choice([10, 20, 40, 80]),
        validation=chance.choice([0, 5, 10, 20]),
        weighs_garbage=chance.random() < 0.8,
        seed=seed,
        skipped=chance.choice([0, 0, 0.3, 0.6]),
        rss_noise=chance.choice([0.05, 0.2, 0.5, 1.5]) * MIB,
        inner=chance.choice([2, 5, 5, 8]),
        full_every=chance.choice([1, 2, 4]),
    )
    made = Mixture(program.constant("main()·model", chance.choice([1, 8, 60]) * MIB), chance)
    for part, likely in PARTS:
        if chance.random() < likely:
            part(made)
    if chance.random() < 0.5:
        leak(made)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 200 * MIB + sum(f(s) or 0 for f in made.in_use))
    if gauge.MALLOC_FREE not in program.gauges:
        program.gauge(gauge.MALLOC_FREE, lambda s: 3 * MIB)
    return made


def circles(made: Mixture) -> None:
    """Garbage that waits for the collector, which comes every so many steps."""
    each = made.chance.choice([0.02, 0.1, 0.3]) * MIB
    every = max(int(made.chance.choice([0.15, 0.3, 0.45]) * made.steps), 5)

    def waiting(state: State) -> float:
        return state.step % every * each

    made.add(waiting)
    made.program.garbage = waiting
    made.program.gauge(gauge.GC_ENABLED, lambda s: 1)
    made.program.gauge(gauge.GC_COLLECTIONS, lambda s: s.step // every)
    made.program.gauge(gauge.GC_COUNT, lambda s: s.step % every)


def warm_up(made: Mixture) -> None:
    """Memory that comes to a level within the first half, in use or free in the C heap."""
    top = made.chance.choice([5, 40, 150]) * MIB
    constant = made.chance.choice([0.03, 0.07]) * made.steps

    def filled(state: State) -> float:
        return top * (1 - 2.718281828 ** (-state.step / constant))

    if made.chance.random() < 0.6:
        made.program.swell(filled).gauge(gauge.MALLOC_FREE, filled)
    else:
        made.add(filled)


def buffer(made: Mixture) -> None:
    """A list that is full after a part of the run."""
    bound = int(made.chance.choice([0.2, 0.5, 0.6]) * made.steps)
    gather(made, "main()·buffer", made.chance.choice([20, 100, 300]) * KIB, until(bound))


def losses(made: Mixture) -> None:
    """A list that is emptied with each epoch."""
    each = made.chance.choice([10, 50]) * KIB
    gather(made, "Meter·losses", each, lambda s: s.batch if s.phase == "train" else 0)


def outputs(made: Mixture) -> None:
    """A local list of each validation."""
    if made.program.validation:
        made.program.local("validate()·outs", 256 * KIB)


PARTS: tuple[tuple[Callable[[Mixture], None], float], ...] = (
    (circles, 0.5), (warm_up, 0.4), (buffer, 0.4), (losses, 0.3), (outputs, 0.4),
)  # fmt: skip


def until(bound: int) -> Callable[[State], float]:
    return lambda state: min(state.step, bound)


def gather(made: Mixture, path: str, each: float, items: Callable[[State], float]) -> None:
    made.program.plant(
        Thing(path, lambda s: 56 + items(s) * (each + 8), length=items),
        Thing(
            f"{path}[*]", lambda s: items(s) * each or None, "tensor", "torch.Tensor", path,
            count=items,
        ),
    )  # fmt: skip
    made.in_use.append(lambda s: items(s) * each)


def leak(made: Mixture) -> None:
    """A list that is never emptied, or native memory that is never freed."""
    program = made.program
    units = {"step": made.steps, "epoch": program.epochs}
    if program.validation:
        units["validation batch"] = program.epochs * program.validation
    per = made.chance.choice(sorted(units))
    each = made.chance.choice([25, 60, 200]) * MIB / units[per]
    made.leaks = made.chance.choice(["named", "native"])
    if made.leaks == "native":
        made.add(lambda s: PER[per](s) * each)
        return
    program.leak(LEAK, each, per)
    made.in_use.append(lambda s: PER[per](s) * each)


@dataclass(frozen=True)
class Outcome:
    """What was concluded of a mixture, and the truth."""

    leaks: str
    verdict: RunVerdict
    headline: str
    accused: tuple[str, ...]
    """What is said to grow across phases, beyond notes."""


@cache
def outcome(seed: int) -> Outcome:
    """Return what is concluded of the program of a seed."""
    made = mixture(seed)
    report = analyse(made.program.build())
    serious = (c for c in report.culprits if c.severity is not Severity.NOTE)
    accused = tuple(c.name for c in serious if c.growth == "across")
    return Outcome(made.leaks, report.verdict, report.headline, accused)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leak_is_never_clean_and_nobody_else_is_accused(seed: int) -> None:
    found = outcome(seed)
    wrong = RunVerdict.CLEAN if found.leaks else RunVerdict.LEAK
    assert found.verdict is not wrong, found.headline
    assert all(name.startswith(LEAK) for name in found.accused), found.headline
    if found.leaks == "named" and found.verdict is RunVerdict.LEAK:
        assert found.accused, found.headline


@pytest.mark.parametrize("is_leak", [True, False])
def test_most_leaks_are_decided_and_most_healthy_programs_are_clean(is_leak: bool) -> None:
    verdicts = [outcome(seed).verdict for seed in SEEDS if bool(outcome(seed).leaks) is is_leak]
    decided = [verdict for verdict in verdicts if verdict is not RunVerdict.INCONCLUSIVE]
    assert len(decided) >= 0.95 * len(verdicts)
