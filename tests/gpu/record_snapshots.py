"""Records snapshots of torch's allocator that tests without a GPU can replay.

    python tests/gpu/record_snapshots.py [NAME…] [--out tests/data/cuda]

Each program below is a small one of ours. Of each are written ``NAME.pickle.gz`` (what
``torch.cuda.memory._snapshot()`` gives, frames with paths relative to the repository or to the
installed packages) and ``NAME.census.json.gz`` (the storages that a census met in the same process
just before, with roles and names: what the join needs). Some tens of kilobytes each.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import pickle
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

ROOT = Path(__file__).parents[2]
STEPS = 20
MIB = 1 << 20
EVENTS = 20_000
Program = Callable[[], Any]
PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    """Have a function recorded under its name, while what it returns is alive."""
    PROGRAMS[make.__name__] = make
    return make


def _model() -> tuple[Any, Any]:
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    ).cuda()
    return model, torch.optim.AdamW(model.parameters())


def _step(model: Any, optimizer: Any, rows: int = 64) -> tuple[Any, Any]:
    import torch

    output = model(torch.randn(rows, 256, device="cuda"))
    loss = output.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return output, loss


@program
def tidy() -> Any:
    """What a healthy training looks like."""
    model, optimizer = _model()
    for _ in range(STEPS):
        _step(model, optimizer)
    return model, optimizer


@program
def list_of_losses() -> Any:
    """Losses kept with their graphs, of steps that are not trained on."""
    model, optimizer = _model()
    losses = []
    for _ in range(STEPS):
        _step(model, optimizer)
        output, loss = _forward(model)
        losses.append(loss)
        del output, loss
    return model, optimizer, losses


@program
def detached_outputs() -> Any:
    """Outputs kept without their graphs."""
    model, optimizer = _model()
    history = []
    for _ in range(STEPS):
        history.append(_step(model, optimizer)[0].detach())
    return model, optimizer, history


@program
def cache_by_shape() -> Any:
    """A cache by shape that fills up and then rests."""
    import torch

    model, optimizer = _model()
    cache: dict[int, Any] = {}
    for step in range(STEPS):
        rows = 32 * (1 + step % 6)
        cache.setdefault(rows, torch.zeros(rows, rows * 64, device="cuda"))
        _step(model, optimizer, rows)
    return model, optimizer, cache


@program
def validation_with_grad() -> Any:
    """A validation pass that records graphs: its peak is higher than the training's."""
    model, optimizer = _model()
    _step(model, optimizer)
    outputs = [_forward(model)[0] for _ in range(STEPS)]
    return model, optimizer, len(outputs)


@program
def validation_without_grad() -> Any:
    """The same under ``no_grad``."""
    import torch

    model, optimizer = _model()
    _step(model, optimizer)
    with torch.no_grad():
        outputs = [_forward(model)[0] for _ in range(STEPS)]
    return model, optimizer, len(outputs)


@program
def predictions_on_the_device() -> Any:
    """Predictions gathered through a pass, and joined at its end."""
    import torch

    model, optimizer = _model()
    with torch.no_grad():
        gathered = [_forward(model)[0].repeat(16, 1) for _ in range(STEPS)]
        return model, optimizer, torch.cat(gathered)


@program
def reference_cycles() -> Any:
    """Tensors in cycles that await the collector."""
    import torch

    class Node:
        def __init__(self) -> None:
            self.me = self
            self.data = torch.zeros(MIB, device="cuda")

    gc.disable()
    for _ in range(STEPS):
        Node()
    gc.enable()
    return None


@program
def graphs_of_many_shapes() -> Any:
    """A CUDA graph captured for each new shape: private pools that grow."""
    import torch

    model, _ = _model()
    captured = []
    for rows in range(64, 64 * 9, 64):
        static = torch.randn(rows, 256, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            model(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            captured.append((graph, static, model(static)))
    return model, captured


@program
def pending_free() -> Any:
    """Tensors freed while another stream still works on them."""
    import torch

    side = torch.cuda.Stream()
    for _ in range(4):
        used = torch.zeros(8 * MIB, device="cuda")
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000_000)
        used.record_stream(side)
        del used
    return None


@program
def pinned_buffers() -> Any:
    """Batches copied from page-locked memory."""
    import torch

    batches = [torch.zeros(MIB, pin_memory=True) for _ in range(8)]
    return batches, [batch.to("cuda", non_blocking=True) for batch in batches]


@program
def fragmented() -> Any:
    """Tensors of many sizes, of which every other goes."""
    import torch

    held = [torch.zeros((1 + n % 7) * 300_000, device="cuda") for n in range(80)]
    del held[::2]
    return held


@program
def scalars() -> Any:
    """Losses kept as tensors of one number, without their graphs."""
    model, optimizer = _model()
    return model, optimizer, [_step(model, optimizer)[1].detach() for _ in range(50)]


@program
def all_reduce() -> Any:
    """Collectives between two devices, whose buffers lie outside the allocator."""
    import torch

    if torch.cuda.device_count() < 2:
        raise UnavailableError("it needs two devices")
    parts = [torch.zeros(MIB, device=f"cuda:{n}") for n in range(2)]
    for _ in range(STEPS):
        torch.cuda.nccl.all_reduce(parts)
    return parts


class UnavailableError(Exception):
    """This machine can't record that program."""


def _forward(model: Any) -> tuple[Any, Any]:
    import torch

    output = model(torch.randn(64, 256, device="cuda"))
    return output, output.square().mean()


def relative(path: str) -> str:
    """Return a path without what tells of the machine: from the repository, or from its package."""
    for root in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(ROOT)):
        if path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    return Path(path).name if path.startswith("/") else path


def with_relative_paths(value: Any, known: dict[int, Any] | None = None) -> Any:
    """Return a snapshot whose frames name no folder of this machine; shared lists stay shared."""
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    made: Any
    if isinstance(value, dict):
        made = {k: with_relative_paths(v, known) for k, v in value.items()}
        if isinstance(made.get("filename"), str):
            made["filename"] = relative(made["filename"])
    elif isinstance(value, list):
        made = [with_relative_paths(item, known) for item in value]
    else:
        return value
    known[id(value)] = made
    return made


def record(name: str, folder: Path) -> None:
    """Run one program and write down what its allocator did."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    taker = CensusTaker(project_root=str(ROOT))
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=EVENTS)
    try:
        kept = PROGRAMS[name]()
        taker.take(CensusScope.FULL)
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    del kept
    folder.mkdir(parents=True, exist_ok=True)
    plain = with_relative_paths(snapshot)
    reported = {
        "torch": torch.__version__,
        "storages": msgspec.to_builtins(taker.device_storages()),
    }
    _write(folder / f"{name}.pickle.gz", pickle.dumps(plain, protocol=4))
    _write(folder / f"{name}.census.json.gz", json.dumps(reported).encode())


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, mtime=0))
    print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")


def main() -> int:
    """Record what was requested; return 1 where there is no device."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(PROGRAMS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "cuda")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(PROGRAMS)
    if unknown:
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    import torch

    if not torch.cuda.is_available():
        print("There is no CUDA device here: nothing was recorded.", file=sys.stderr)
        return 1
    for name in arguments.names or PROGRAMS:
        try:
            record(name, arguments.out)
        except UnavailableError as reason:
            print(f"{name}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
