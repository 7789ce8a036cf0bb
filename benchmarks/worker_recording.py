"""What it costs a DataLoader that its workers record themselves: batches a second, processor time.

Nothing is trained: the loader is all there is, so that whatever slows it down is seen. Each round
loads plainly, under leakscope with its workers left alone, and under leakscope as it is, each case
by itself: a small dataset and a large one, workers that stay and those that torch starts anew for
each pass unless told otherwise. The first pass, where most censuses lie, is told apart.

    python benchmarks/worker_recording.py [--rounds 3] [--passes 4] [--cases NAME …] [--quick]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from machine import machine

VARIANTS = ("plain", "workers left alone", "workers recorded")
SAMPLES, BATCH, WORKERS = 6400, 32, 2
"""Samples that a pass loads, whatever the dataset holds."""
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """A dataset of so many dicts, and whether its workers outlive a pass."""

    dicts: int
    persistent: bool


CASES = {
    "small": Case(SAMPLES, persistent=True),
    "small-anew": Case(SAMPLES, persistent=False),
    "large": Case(200_000, persistent=True),
    "large-anew": Case(200_000, persistent=False),
}


def load(case: Case, passes: int) -> None:
    """Load the first pass and so many more; print the seconds of both, and processor seconds.

    Those are of the whole process and its workers, which are counted when they have ended.
    """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Augmented(Dataset):
        def __init__(self) -> None:
            self.samples = [
                {"path": f"image{i:06d}.png", "label": i % 7} for i in range(case.dicts)
            ]

        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            image = torch.rand(3, 96, 96)
            for _ in range(4):
                image = (image * 1.01).clamp(0, 1).flip(2)
            return image.mean(0), self.samples[index * case.dicts // SAMPLES]["label"]

    torch.set_num_threads(1)
    loader = DataLoader(Augmented(), BATCH, num_workers=WORKERS, persistent_workers=case.persistent)
    taken = []
    for _ in range(1 + passes):
        began = time.perf_counter()
        for _ in loader:
            pass
        taken.append(time.perf_counter() - began)
    if case.persistent:
        loader._iterator._shutdown_workers()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    print(json.dumps({"first": taken[0], "later": sum(taken[1:]), "processor": processor}))


def timed(variant: str, case: str, passes: int, folder: Path) -> Figures:
    words = [str(Path(__file__).resolve()), "--load", case, "--passes", str(passes)]
    if variant != VARIANTS[0]:
        workers = "on" if variant == VARIANTS[2] else "off"
        options = ["--quiet", "--force", "--no-report", "--workers", workers]
        words = ["-m", "leakscope", "run", *options, "--out", str(folder / "run"), *words]
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=4, help="after the first, some 3 s each")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--quick", action="store_true", help="to try it: the ratios say nothing")
    parser.add_argument("--load", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load(CASES[arguments.load], arguments.passes)
        return
    rounds, passes = (1, 1) if arguments.quick else (arguments.rounds, arguments.passes)
    print(machine())
    for name in arguments.cases:
        case = CASES[name]
        kind = "workers stay" if case.persistent else "workers start anew for each pass"
        print(f"\n{name}: {case.dicts:,} dicts, {kind}")
        tell(measured(name, rounds, passes), passes)


def measured(case: str, rounds: int, passes: int) -> dict[str, list[Figures]]:
    """Return the figures of each variant, one of each round."""
    found: dict[str, list[Figures]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            order = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
            for variant in order:
                found[variant].append(timed(variant, case, passes, Path(folder)))
    return found


def tell(found: dict[str, list[Figures]], passes: int) -> None:
    """Print batches a second after the first pass, and ratios to the plain run of the round."""
    batches = passes * SAMPLES / BATCH
    for variant in VARIANTS:
        pairs = list(zip(found[variant], found[VARIANTS[0]], strict=True))
        first, later, processor = (
            said([mine[figure] / plain[figure] for mine, plain in pairs])
            for figure in ("first", "later", "processor")
        )
        speed = statistics.median(batches / item["later"] for item in found[variant])
        print(
            f"{variant:20} {speed:5.0f} batches/s   first pass {first}   later passes {later}"
            f"   processor {processor}"
        )


def said(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


if __name__ == "__main__":
    main()
