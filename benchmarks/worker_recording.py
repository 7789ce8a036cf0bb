"""What it costs a DataLoader that its workers record themselves: batches a second, processor time.

Nothing is trained: the loader is all there is, so that whatever slows it down is seen. Each round
loads plainly, under leakscope with its workers left alone, and under leakscope as it is.

    python benchmarks/worker_recording.py [--rounds 3] [--passes 8] [--quick]
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
from pathlib import Path

from machine import machine

VARIANTS = ("plain", "workers left alone", "workers recorded")
SAMPLES, BATCH, WORKERS = 6400, 32, 2


def load(passes: int) -> None:
    """Load so many passes, the first for warming up; print seconds and processor seconds."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Augmented(Dataset):
        def __init__(self) -> None:
            self.samples = [{"path": f"image{i:06d}.png", "label": i % 7} for i in range(SAMPLES)]

        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            image = torch.rand(3, 96, 96)
            for _ in range(4):
                image = (image * 1.01).clamp(0, 1).flip(2)
            return image.mean(0), self.samples[index]["label"]

    torch.set_num_threads(1)
    loader = DataLoader(Augmented(), BATCH, num_workers=WORKERS, persistent_workers=True)
    for _ in loader:
        pass
    began = time.perf_counter()
    for _ in range(passes):
        for _ in loader:
            pass
    seconds = time.perf_counter() - began
    loader._iterator._shutdown_workers()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    print(json.dumps({"seconds": seconds, "processor": processor}))


def timed(variant: str, passes: int, folder: Path) -> dict[str, float]:
    words = [str(Path(__file__).resolve()), "--load", str(passes)]
    if variant != VARIANTS[0]:
        workers = "on" if variant == VARIANTS[2] else "off"
        options = ["--quiet", "--force", "--no-report", "--workers", workers]
        words = ["-m", "leakscope", "run", *options, "--out", str(folder / "run"), *words]
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=8, help="of some three seconds each")
    parser.add_argument("--quick", action="store_true", help="to try it: the ratios say nothing")
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load(arguments.load)
        return
    rounds, passes = (1, 1) if arguments.quick else (arguments.rounds, arguments.passes)
    print(machine())
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            order = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
            for variant in order:
                found[variant].append(timed(variant, passes, Path(folder)))
    batches = passes * SAMPLES / BATCH
    for variant in VARIANTS:
        pairs = list(zip(found[variant], found[VARIANTS[0]], strict=True))
        wall, processor = (
            [mine[figure] / plain[figure] for mine, plain in pairs]
            for figure in ("seconds", "processor")
        )
        speed = statistics.median(batches / one["seconds"] for one in found[variant])
        print(
            f"{variant:20} {speed:7.0f} batches/s   wall {said(wall)}   processor {said(processor)}"
        )


def said(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


if __name__ == "__main__":
    main()
