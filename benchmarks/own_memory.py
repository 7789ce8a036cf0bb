"""leakscope's own memory over a long run that doesn't leak: it should be flat after warm-up.

    python benchmarks/own_memory.py [--boundaries 200000] [--quick]

One process trains plainly, one under `leakscope.profile()`, as cheap a step as torch has. At each
tenth of the way, garbage collected, each tells its resident memory, the blocks that Python has
allocated and how many objects are of leakscope's own types.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
LOOKS = 10
STEPS = 1000
"""Steps of an epoch; with its validation and its ends an epoch has `PER_EPOCH` boundaries."""
VALIDATION = 16
PER_EPOCH = STEPS + VALIDATION + 4


@dataclass(frozen=True)
class Look:
    """The process at a moment."""

    boundaries: int
    resident: int
    blocks: int
    objects: int
    """Of leakscope's own types."""


def look(boundaries: int) -> Look:
    """Return the process as it is now, garbage collected."""
    gc.collect()
    ours = sum(str(type(o).__module__).startswith("leakscope.") for o in gc.get_objects())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return Look(boundaries, resident, sys.getallocatedblocks(), ours)


def train(boundaries: int) -> Iterator[Look]:
    """Train for so many boundaries and yield a look at each tenth of the way."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    training = DataLoader(TensorDataset(torch.rand(STEPS, 4)), batch_size=1)
    validation = DataLoader(TensorDataset(torch.rand(VALIDATION, 4)), batch_size=1)
    epochs = max(LOOKS, boundaries // PER_EPOCH)
    for epoch in range(1, epochs + 1):
        model.train()
        for (batch,) in training:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for (batch,) in validation:
                model(batch)
        if epoch * LOOKS // epochs > (epoch - 1) * LOOKS // epochs:
            yield look(epoch * PER_EPOCH)


def watched(boundaries: int, folder: Path) -> list[Look]:
    """Train under leakscope and return the looks."""
    import leakscope

    with leakscope.profile(out=str(folder / "run"), report=False, quiet=True):
        return list(train(boundaries))


def in_a_process(boundaries: int, *, plain: bool) -> list[Look]:
    """Return the looks of a fresh process."""
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--boundaries",
        str(boundaries),
        "--tell",
    ]
    command += ["--plain"] * plain
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [Look(**fields) for fields in json.loads(output)]


def tell(boundaries: int, *, plain: bool) -> None:
    """Print the looks of this process as JSON."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        looks = list(train(boundaries)) if plain else watched(boundaries, Path(folder))
    print(json.dumps([asdict(each) for each in looks]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--boundaries", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the boundaries")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tell", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    boundaries = chosen.boundaries // 10 if chosen.quick else chosen.boundaries
    if chosen.tell:
        tell(boundaries, plain=chosen.plain)
        return
    alone = in_a_process(boundaries, plain=True)
    with_us = in_a_process(boundaries, plain=False)
    print("boundaries   our objects   blocks more than plain   resident more than plain, MiB")
    for item, other in zip(with_us, alone, strict=True):
        resident = (item.resident - other.resident) / MIB
        blocks = item.blocks - other.blocks
        print(f"{item.boundaries:>10,} {item.objects:>13,} {blocks:>24,} {resident:>31.1f}")


if __name__ == "__main__":
    main()
