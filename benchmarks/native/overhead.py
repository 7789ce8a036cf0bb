"""What sampling native allocations costs: beside plain blocks of the same process, and peers.

A process does its work in blocks, by turns plain and followed: both see the same machine, heap and
caches. A figure is the median of the ratios of processor time, of neighbouring blocks. What begins
to follow costs more at first; *from the second block on* it has followed one that isn't counted.

    python benchmarks/native/overhead.py [--pairs 15] [--work tiny,convolution,...]
                                         [--tool NAME] [--quick]
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
STEPS = {"tiny": 600, "convolution": 5, "loading": 50, "mallocs": 200_000, "objects": 2_000_000}
WORK_PER_BLOCK = 800
"""Additions between two blocks of ``mallocs``: about a microsecond in all."""
TOOLS = {
    "leakscope, 512 KiB": "",
    "leakscope, 512 KiB, from the second block on": "",
    "leakscope, 64 KiB": "",
    "leakscope, 8 KiB": "",
    "tracemalloc, 1 frame": "",
    "memray": "memray",
    "memray --native": "memray",
}
LASTING = "from the second block on"
PATIENCE_SECONDS = 900


@contextmanager
def followed(tool: str, scratch: Path, number: int) -> Iterator[None]:
    """Have a tool follow allocations."""
    if tool.startswith("leakscope"):
        from leakscope.probes.native_allocations import NativeProfile

        profile = NativeProfile(interval=int(tool.split()[1]) << 10)
        assert profile.start(), profile.why_not
        yield
        profile.stop()
    elif tool.startswith("tracemalloc"):
        tracemalloc.start(1)
        yield
        tracemalloc.stop()
    else:
        import memray

        target = scratch / f"{number}.bin"
        with memray.Tracker(target, native_traces="--native" in tool):
            yield
        target.unlink()


def work(name: str, scratch: Path) -> Callable[[], object]:
    """Return what does a block of work."""
    steps = STEPS[name]
    if name == "objects":
        return lambda: make_records(steps)
    if name == "mallocs":
        library = scratch / "libmallocs.so"
        command = ["gcc", "-O2", "-shared", "-fPIC", HERE / "mallocs.c", "-o", library]
        subprocess.run(command, check=True)
        function = ctypes.CDLL(str(library)).mallocs
        function.argtypes, function.restype = [ctypes.c_long, ctypes.c_long], ctypes.c_double
        return lambda: function(steps, WORK_PER_BLOCK)
    import torch
    from torch.nn import functional
    from training_loop import LOOPS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LOOPS[name].model()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = LOOPS[name].loader(steps, 1)

    def epoch() -> None:
        for images, labels in loader:
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


class Tag:
    """An object with attributes of its own."""

    def __init__(self, number: int) -> None:
        self.number, self.text = number, f"tag {number}"


def make_records(number: int) -> None:
    """Make small objects of Python's, some millions a second, and keep the newest."""
    recent: deque[dict[str, object]] = deque(maxlen=1000)
    for i in range(number):
        recent.append({"name": str(i), "values": [i, i + 0.5], "tag": Tag(i)})


def measure(name: str, tool: str, pairs: int) -> dict[str, object]:
    """Return the ratios of a tool to plain blocks, in this process."""
    from training_loop import processor_s

    with tempfile.TemporaryDirectory() as folder:
        block = work(name, Path(folder))
        block()

        def seconds() -> float:
            began = processor_s()
            block()
            return processor_s() - began

        ratios, plain = [], []
        for number in range(pairs):
            if number % 2:
                plain.append(seconds())
            with followed(tool, Path(folder), number):
                if tool.endswith(LASTING):
                    block()
                with_tool = seconds()
            if not number % 2:
                plain.append(seconds())
            ratios.append(with_tool / plain[-1])
    return {"ratios": ratios, "seconds": statistics.median(plain)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--work", default=",".join(STEPS))
    parser.add_argument("--tool", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    pairs = 4 if options.quick else options.pairs
    if options.in_process:
        print(json.dumps(measure(options.work, options.tool, pairs)))
        return
    works = options.work.split(",")
    print(f"| followed by | {' | '.join(works)} |\n| --- |{' --- |' * len(works)}")
    for tool, needs in TOOLS.items():
        if options.tool and options.tool not in tool:
            continue
        if needs and importlib.util.find_spec(needs) is None:
            print(f"| {tool} | not installed |")
            continue
        cells = [cell(name, tool, pairs) for name in works]
        print(f"| {tool} | {' | '.join(cells)} |", flush=True)


def cell(name: str, tool: str, pairs: int) -> str:
    command = [sys.executable, __file__, "--in-process", "--work", name, "--tool", tool]
    done = subprocess.run(
        [*command, "--pairs", str(pairs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60] if done.stderr else "failed"
    ratios = sorted(json.loads(done.stdout.splitlines()[-1])["ratios"])
    quarter = len(ratios) // 4
    low, high = ratios[quarter], ratios[-1 - quarter]
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
