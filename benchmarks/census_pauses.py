"""How long a program stands still for a census, next to `gc.collect()`, on heaps of many sizes.

Of `plain` and `torch` nine tenths are a library's and one tenth is the user's, in plain dicts and
lists; `torch` has torch's own objects among them. Of `records` all is the user's. Between two
censuses a share of the records is replaced. In every round, each in turn: a census that goes on
from what earlier ones sealed, after changes of each share; `gc.collect()` right after it, on the
same heap; and a census that walks all of it. So a drift of the machine touches all alike, and
ratios are taken within a round.

    python benchmarks/census_pauses.py [--heaps plain,torch,records] [--sizes 100000,450000,1000000]
        [--large] [--shares 0,1,2] [--rounds 20] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import time
import types
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
LIBRARY = "a_library_that_keeps"
USER_PART = {"plain": 0.1, "torch": 0.1, "records": 1.0}
OBJECTS_PER_RECORD = 6
"""A dict, a list, two floats, an int and a text."""
LARGE = 10_000_000
BYTES_PER_OBJECT = 350
"""What an object of these heaps takes at most with all that a census needs meanwhile."""
WARM_UP = 2
"""Rounds that aren't counted: the first census seals, the second what the collector made old."""
BETTER_THAN_WORST = 0.99


@dataclass
class Round:
    """What one round took, in seconds."""

    resumed: dict[str, float]
    """The census that goes on from the seal, by the share of changed records in percent."""
    collected: dict[str, float]
    """`gc.collect()` right after it."""
    whole: float
    """The census of a new taker, which walks everything."""


@dataclass
class Case:
    """One heap of one size."""

    heap: str
    size: int
    objects: int = 0
    """As the whole walk counts them."""
    sealed: int = 0
    sealed_bytes: int = 0
    rounds: list[Round] = field(default_factory=list)
    why_not: str = ""


def record(number: int) -> dict[str, Any]:
    """Return a dict with a list: six objects that nothing else refers to."""
    return {"values": [number + 0.5, number + 0.25], "id": 1_000_000 + number, "name": f"r{number}"}


def library_module() -> types.ModuleType:
    """Return a module that is taken for an installed package."""
    module = types.ModuleType(LIBRARY)
    module.__file__ = str(Path(sysconfig.get_paths()["purelib"]) / f"{LIBRARY}.py")
    sys.modules[LIBRARY] = module
    return module


class Heap:
    """Records of a library and of the user's, of which some are replaced."""

    def __init__(self, size: int, imported: int, user_part: float) -> None:
        self._random = random.Random(0)
        count = max(100, (size - imported) // OBJECTS_PER_RECORD)
        mine = int(count * user_part)
        records = [record(i) for i in range(count - mine)]
        library_module().records = records  # type: ignore[attr-defined]
        self.mine: list[dict[str, Any]] = [record(i) for i in range(mine)]

    def change(self, percent: float) -> None:
        """Replace that share of the records, wherever they lie."""
        theirs: list[dict[str, Any]] = sys.modules[LIBRARY].records  # no name of the user's
        for records in (theirs, self.mine):
            for _ in range(round(len(records) * percent / 100)):
                place = self._random.randrange(len(records))
                records[place] = record(self._random.randrange(1 << 30))


heap: Heap | None = None
"""A name of the user's: this file is the program, and its folder the project."""


def serve(name: str, size: int, shares: list[str], rounds: int) -> None:
    """Measure one heap in this process and print its case as a line of JSON."""
    from leakscope.heap.census import CensusTaker
    from leakscope.model.census import Census, CensusScope

    global heap
    if name == "torch":
        importlib.import_module("torch")
    imported = CensusTaker(project_root=str(HERE.parent)).take(CensusScope.FULL).objects
    heap = Heap(size, imported, USER_PART[name])
    gc.collect()
    taker = CensusTaker(project_root=str(HERE.parent))

    def timed(call: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        result = call()
        return time.perf_counter() - began, result

    case = Case(name, size)
    for number in range(WARM_UP + rounds):
        resumed, collected = {}, {}
        for share in shares if number % 2 == 0 else reversed(shares):
            heap.change(float(share))
            resumed[share], latest = timed(lambda: taker.take(CensusScope.FULL))
            collected[share], _ = timed(gc.collect)
        resumed_census: Census = latest
        other = CensusTaker(project_root=str(HERE.parent))
        whole, whole_census = timed(lambda t=other: t.take(CensusScope.FULL))
        del other
        if number >= WARM_UP:
            case.rounds.append(Round(resumed, collected, whole))
    case.objects, case.sealed = whole_census.objects, resumed_census.sealed
    case.sealed_bytes = taker.sealed_bytes
    print(json.dumps(asdict(case)), flush=True)
    os._exit(0)  # taking millions of objects apart would only take time


def measure(name: str, size: int, shares: list[str], rounds: int) -> Case:
    """Return what a process of its own found."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if size * BYTES_PER_OBJECT > free:
        needed = size * BYTES_PER_OBJECT / 2**30
        return Case(name, size, why_not=f"needs {needed:.1f} GiB of memory")
    text = [name, str(size), ",".join(shares), str(rounds)]
    done = subprocess.run(
        [sys.executable, str(HERE), "--serve", *text],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        return Case(name, size, why_not=f"ended with code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    found["rounds"] = [Round(**each) for each in found["rounds"]]
    return Case(**found)


def late(values: list[float]) -> float:
    """Return the 99th percentile: of fewer than a hundred values the most."""
    return sorted(values)[math.ceil(len(values) * BETTER_THAN_WORST) - 1]


def milliseconds(values: list[float]) -> str:
    return f"{statistics.median(values) * 1e3:.1f} / {late(values) * 1e3:.1f}"


def ratio(values: list[float], base: list[float]) -> str:
    """Return the median of the ratios within rounds, and the least and the most."""
    ratios = [a / b for a, b in zip(values, base, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def rows(case: Case) -> list[str]:
    """Return the rows of a case: a census after each share of changes, and the whole one."""
    if case.why_not:
        return [f"| `{case.heap}` | {case.size:,} | {case.why_not} | | | | |"]
    shares = list(case.rounds[0].resumed)
    seal = f"{case.sealed_bytes / case.objects:.1f}"
    lines = []
    for share in sorted(shares, key=float):
        taken = [each.resumed[share] for each in case.rounds]
        collected = [each.collected[share] for each in case.rounds]
        cells = [f"{share} % changed", milliseconds(taken), milliseconds(collected)]
        lines.append([*cells, ratio(taken, collected), seal])
    taken = [each.whole for each in case.rounds]
    collected = [statistics.median(each.collected.values()) for each in case.rounds]
    cells = ["whole walk", milliseconds(taken), milliseconds(collected)]
    lines.append([*cells, ratio(taken, collected), ""])
    first = [f"`{case.heap}`", f"{case.objects:,}"]
    return [f"| {' | '.join([*(first if not i else ['', '']), *c])} |" for i, c in enumerate(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--heaps", default="plain,torch,records")
    parser.add_argument("--sizes", default="100000,450000,1000000", help="objects of a process")
    parser.add_argument("--large", action="store_true", help=f"{LARGE:,} objects too")
    parser.add_argument("--shares", default="0,1,2", help="records changed, in percent")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="small heaps, 3 rounds: to try it")
    parser.add_argument("--json", type=Path, help="write every timing to this file")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        name, size, shares, rounds = chosen.serve
        serve(name, int(size), shares.split(","), int(rounds))
    if chosen.quick:
        chosen.sizes, chosen.rounds = "20000", 3
    sizes = [int(size) for size in chosen.sizes.split(",")] + [LARGE] * chosen.large
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
        f"{chosen.rounds} rounds; p50 / p99 in ms, ratios as median (least–most)\n"
    )
    print("| heap | objects | census | pause | `gc.collect()` | ratio | seal, bytes an object |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    cases = []
    for name in chosen.heaps.split(","):
        for size in sizes:
            cases.append(measure(name, size, chosen.shares.split(","), chosen.rounds))
            print("\n".join(rows(cases[-1])), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(case) for case in cases], indent=1))


if __name__ == "__main__":
    main()
