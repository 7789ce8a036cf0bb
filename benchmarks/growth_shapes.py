"""What the growth model makes of named shapes: a confusion table.

    python benchmarks/growth_shapes.py [--seeds N | --quick] [--wrong] [--only NAME]

Each shape is judged at 6, 10, 20, 60 and 300 readings, over many seeds, with little and with much
noise. A leak that is called bounded and a bounded one that is called growing are errors; that few
readings leave it open is none.

Then populations: exact counts of what a program holds, such as entries that expire after a while,
which go up and down by chance and are read at as few moments as a run has censuses. Some of them
can't be told from a leak by anyone who sees only those readings.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import judge_growth
from leakscope.model.trend import TrendVerdict

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Draw = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]
Population = Callable[[np.random.Generator], FloatArray]
Looks = Callable[[np.random.Generator], IntArray]

LENGTHS = (6, 10, 20, 60, 300)
NOISES = (0.0, 0.02, 0.1)
"""Of readings, as a part of the shape's own range (of the leak's in teeth)."""


@dataclass(frozen=True)
class Shape:
    """A family of series, and how it must not be judged."""

    name: str
    truth: str
    """``leak``, ``bounded``, or ``open``: growth that slows down for ever, or one late step."""
    draw: Draw
    has_noise: bool = True


def evenly(y_of: Callable[[FloatArray, np.random.Generator], FloatArray]) -> Draw:
    """Return a family over evenly spaced work, given over the run as 0 to 1."""

    def draw(n: int, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x = np.arange(n, dtype=np.float64)
        return x, y_of(x / (n - 1), random)

    return draw


def staircase(t: FloatArray, random: np.random.Generator) -> FloatArray:
    steps = random.integers(4, 8)
    return np.floor(t * steps + random.uniform(0, 1)) / steps


def poisson_steps(t: FloatArray, random: np.random.Generator) -> FloatArray:
    """Steps at random moments, at the same rate to the end."""
    moments = np.sort(random.uniform(0, 1, max(5, len(t) // 3)))
    return np.searchsorted(moments, t, side="right") / len(moments)


def plateaus(t: FloatArray, random: np.random.Generator) -> FloatArray:
    """An allocator's arenas: each step comes after twice the time of the one before."""
    first = random.uniform(0.01, 0.06)
    moments = first * 2.0 ** np.arange(12)
    return np.searchsorted(moments[moments < 0.65], t, side="right").astype(np.float64)


def collected(t: FloatArray, random: np.random.Generator) -> FloatArray:
    """Garbage that gathers and is collected, every so many readings."""
    period = random.integers(2, max(3, len(t) // 5) + 1)
    return (np.arange(len(t)) + random.integers(period)) % period / period


def unequal(n: int, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Epochs of unequal length, of which each keeps in proportion to its work."""
    work = np.cumsum(random.uniform(0.3, 3.0, n))
    return work, work.copy()


def unequal_fill(n: int, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    work = np.cumsum(random.uniform(0.3, 3.0, n))
    return work, np.minimum(work, work[-1] * random.uniform(0.2, 0.5))


def when(random: np.random.Generator, low: float, high: float) -> float:
    return float(random.uniform(low, high))


SHAPES = (
    Shape("linear", "leak", evenly(lambda t, r: t)),
    Shape("late", "leak", evenly(lambda t, r: np.maximum(t - when(r, 0.2, 0.6), 0))),
    Shape("staircase", "leak", evenly(staircase)),
    Shape("steps at random", "leak", evenly(poisson_steps)),
    Shape("jump, then leak", "leak", evenly(lambda t, r: 3.0 * (t > when(r, 0.1, 0.5)) + t)),
    Shape(
        "warm-up, then leak",
        "leak",
        evenly(lambda t, r: np.minimum(t / when(r, 0.05, 0.2), 1) * 2 + t),
    ),
    Shape("teeth on a leak", "leak", evenly(lambda t, r: t + 0.5 * collected(t, r))),
    Shape("great teeth on a leak", "leak", evenly(lambda t, r: t + 3 * collected(t, r))),
    Shape("drift under noise", "leak", evenly(lambda t, r: t + r.normal(0, 0.6, len(t)))),
    Shape("unequal epochs", "leak", unequal),
    Shape("quickening", "leak", evenly(lambda t, r: t**2)),
    Shape("square root", "open", evenly(lambda t, r: np.sqrt(t))),
    Shape("logarithm", "open", evenly(lambda t, r: np.log1p(20 * t))),
    Shape("step at the end", "open", evenly(lambda t, r: 1.0 * (t >= 1))),
    Shape("fill to the end", "open", evenly(lambda t, r: np.minimum(t, 0.93))),
    Shape("level", "bounded", evenly(lambda t, r: np.zeros(len(t))), has_noise=False),
    Shape("noise", "bounded", evenly(lambda t, r: r.normal(0, 1, len(t))), has_noise=False),
    Shape("warm-up", "bounded", evenly(lambda t, r: np.minimum(t / when(r, 0.05, 0.3), 1))),
    Shape("fill", "bounded", evenly(lambda t, r: np.minimum(t, when(r, 0.3, 0.7)))),
    Shape("jump", "bounded", evenly(lambda t, r: 1.0 * (t > when(r, 0.1, 0.7)))),
    Shape("two jumps", "bounded", evenly(lambda t, r: 1.0 * (t > 0.15) + (t > when(r, 0.3, 0.6)))),
    Shape("saturation", "bounded", evenly(lambda t, r: 1 - np.exp(-t / when(r, 0.05, 0.25)))),
    Shape("sawtooth", "bounded", evenly(collected)),
    Shape(
        "sawtooth after a fill",
        "bounded",
        evenly(lambda t, r: np.minimum(t, 0.3) + 0.5 * collected(t, r)),
    ),
    Shape("allocator plateaus", "bounded", evenly(plateaus)),
    Shape("falling", "bounded", evenly(lambda t, r: -t)),
    Shape("fill, unequal epochs", "bounded", unequal_fill),
)


UNITS = 1200
"""Of work in a run of a program whose population is read."""


def by_time(random: np.random.Generator) -> IntArray:
    """A run of 15 seconds without steps, in which censuses become rarer."""
    at = np.array([3, 4, 5, 7, 9, 12, 15, 15.1]) + random.uniform(-0.05, 0.1, 8)
    return np.clip(at / 15.1 * (UNITS - 1), 0, UNITS - 1).astype(int)


def by_step(random: np.random.Generator) -> IntArray:
    """Censuses at ever longer distances in one long phase of steps."""
    at, factor = [3, 4, 5, 7, 10], random.uniform(1.3, 1.6)
    while at[-1] < UNITS * 0.97:
        at.append(int(at[-1] * factor * random.uniform(0.9, 1.25)) + 1)
    return np.array([place for place in at if place < UNITS])


def by_epoch(random: np.random.Generator) -> IntArray:
    epochs = int(random.integers(6, 25))
    return np.linspace(UNITS // epochs, UNITS - 1, epochs).astype(int)


LOOKS = {"by time": by_time, "by step": by_step, "by epoch": by_epoch}


def expiring(random: np.random.Generator) -> FloatArray:
    """Entries that come by chance and go after the same time each."""
    life = int(UNITS * random.uniform(0.05, 0.35))
    come = np.cumsum(random.poisson(random.choice([0.05, 0.2, 1.0]), UNITS)).astype(float)
    return come - np.concatenate([np.zeros(life), come[:-life]])


def sessions(random: np.random.Generator) -> FloatArray:
    """Entries that come by chance and stay for as long as chance has it."""
    open_ones, life = np.zeros(UNITS + 1), UNITS * random.uniform(0.03, 0.15)
    come = np.flatnonzero(random.random(UNITS) < random.choice([0.05, 0.2, 0.9]))
    gone = np.minimum(come + 1 + random.exponential(life, len(come)).astype(int), UNITS)
    np.add.at(open_ones, come, 1)
    np.add.at(open_ones, gone, -1)
    return np.cumsum(open_ones)[:-1]


def cleared(random: np.random.Generator) -> FloatArray:
    """A list that is cleared at the end of epochs of unequal length."""
    usual = UNITS * random.uniform(0.05, 0.35)
    ends = np.cumsum(usual * random.uniform(0.5, 1.5, 60)).astype(int)
    at = np.arange(UNITS)
    begun = np.concatenate([[0], ends])[np.searchsorted(ends, at, side="right")]
    return (at - begun + 1).astype(float)


def flushed(random: np.random.Generator) -> FloatArray:
    """A buffer that is written away at moments of chance."""
    is_flushed = random.random(UNITS) < 1 / (UNITS * random.uniform(0.03, 0.3))
    at = np.arange(UNITS)
    return (at - np.maximum.accumulate(np.where(is_flushed, at, -1))).astype(float)


def queued(random: np.random.Generator) -> FloatArray:
    """A bounded queue between a producer and a consumer that are equally fast."""
    room, length, lengths = int(random.integers(4, 60)), 0, []
    for move in random.integers(-1, 2, UNITS):
        length = min(room, max(0, length + int(move)))
        lengths.append(length)
    return np.array(lengths, dtype=float)


def leaking(population: Population) -> Population:
    """Return a population under which a leak gains one to three times its range."""

    def draw(random: np.random.Generator) -> FloatArray:
        y = population(random)
        gain = max(float(np.ptp(y)), 1.0) * random.uniform(1, 3)
        return y + gain * np.arange(UNITS) / UNITS

    return draw


BOUNDED: dict[str, Population] = {
    "entries that expire": expiring,
    "sessions": sessions,
    "cleared each epoch": cleared,
    "flushed at times": flushed,
    "bounded queue": queued,
}
POPULATIONS = [
    *[(name, "bounded", draw) for name, draw in BOUNDED.items()],
    *[(f"{name}, a leak", "leak", leaking(draw)) for name, draw in BOUNDED.items()],
    ("leak by chance", "leak", lambda r: np.cumsum(r.poisson(0.1, UNITS)).astype(float)),
]


def count_population(population: Population, looks: Looks, seeds: int) -> Counter[TrendVerdict]:
    """Count what is concluded on a population, read at a run's censuses."""
    found: Counter[TrendVerdict] = Counter()
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        y, at = population(random), looks(random)
        found[judge_growth(at.astype(float), y[at], noise=0.5).verdict] += 1
    return found


def print_populations(seeds: int) -> None:
    print(f"\n{'population':32} {'truth':8} " + " ".join(f"{name:>16}" for name in LOOKS))
    totals: Counter[tuple[str, TrendVerdict]] = Counter()
    for name, truth, draw in POPULATIONS:
        cells = []
        for looks in LOOKS.values():
            found = count_population(draw, looks, seeds)
            totals.update({(truth, verdict): number for verdict, number in found.items()})
            cells.append("/".join(f"{100 * found[v] / seeds:3.0f}" for v in TrendVerdict))
        print(f"{name:32} {truth:8} " + " ".join(f"{cell:>16}" for cell in cells))
    for truth in ("bounded", "leak"):
        every = sum(number for (kind, _), number in totals.items() if kind == truth)
        shares = [f"{totals[truth, v] / every:.1%} {v.value}" for v in TrendVerdict]
        print(f"{truth}: {', '.join(shares)} of {every}")


def series_of(shape: Shape, n: int, noise: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return one series of a family."""
    random = np.random.default_rng(seed)
    x, y = shape.draw(n, random)
    if shape.has_noise and noise:
        size = float(np.ptp(y)) if shape.truth != "leak" else 1.0
        y = y + random.normal(0, noise * size, n)
    return x, y


def is_wrong(shape: Shape, verdict: TrendVerdict) -> bool:
    if shape.truth == "leak":
        return verdict is TrendVerdict.BOUNDED
    return shape.truth == "bounded" and verdict is TrendVerdict.GROWING


def count(shape: Shape, n: int, noise: float, seeds: int) -> Counter[TrendVerdict]:
    return Counter(judge_growth(*series_of(shape, n, noise, s)).verdict for s in range(seeds))


def wrong_seeds(shape: Shape, n: int, noise: float, seeds: int) -> list[int]:
    """Return the seeds of the series that are judged wrong."""
    return [
        seed
        for seed in range(seeds)
        if is_wrong(shape, judge_growth(*series_of(shape, n, noise, seed)).verdict)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--quick", action="store_const", const=10, dest="seeds", help="10 seeds")
    parser.add_argument("--only", default="")
    parser.add_argument("--wrong", action="store_true", help="name the seeds that are judged wrong")
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if arguments.only in shape.name]
    print("growing / bounded / inconclusive in 100 series; ! wrong\n")
    head = " ".join(f"{f'{n} readings':>16}" for n in LENGTHS)
    print(f"{'shape':24} {'truth':8} {'noise':>5} {head}")
    wrong, judged, begun = 0, 0, time.perf_counter()
    for shape in shapes:
        for noise in NOISES if shape.has_noise else NOISES[:1]:
            cells = []
            for n in LENGTHS:
                found = count(shape, n, noise, arguments.seeds)
                bad = sum(number for verdict, number in found.items() if is_wrong(shape, verdict))
                wrong, judged = wrong + bad, judged + arguments.seeds
                shares = [100 * found[v] / arguments.seeds for v in TrendVerdict]
                cells.append(f"{shares[0]:3.0f}/{shares[1]:3.0f}/{shares[2]:3.0f}{' !'[bad > 0]}")
                if arguments.wrong and bad:
                    cells[-1] += str(wrong_seeds(shape, n, noise, arguments.seeds)[:3])
            row = " ".join(f"{cell:>16}" for cell in cells)
            print(f"{shape.name:24} {shape.truth:8} {noise:5.0%} {row}")
    each = (time.perf_counter() - begun) / judged * 1e3
    print(f"\n{wrong} of {judged} wrong; {each:.2f} ms each")
    if not arguments.only:
        print_populations(arguments.seeds)


if __name__ == "__main__":
    main()
