"""The heap engine beside its peers: time, memory and what is left behind, on heaps of known shape.

Every tool has a process of its own with the same heap in it, built from the same seed after torch
was imported. All of them live at the same time and look in turn, one at a time, every second round
in reverse order, so that a drift of the machine touches all alike. The first call is told apart:
tools import and cache then.

    python benchmarks/heap/compare.py [--sizes 100000,1000000] [--rounds 3] [--only NAME]
        [--heaps mix,plain,chain,table,nest] [--patience 10] [--timeout 120] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heaps import FIXED_SIZES, HEAPS
from peers import LEAKSCOPE, TOOLS

WORKER = str(Path(__file__).with_name("worker.py"))
MIB = 1 << 20
HEADER = (
    "| tool | saw | first call | later calls | ns per object | × leakscope per object "
    "| peak, bytes per object | kept |"
)


class NoAnswerError(Exception):
    """A worker did not answer; the message says why in a sentence."""


class Worker:
    """A process with one heap in it, looked at by one tool."""

    def __init__(self, heap: str, size: int, tool: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, WORKER, heap, str(size), tool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def built(self) -> None:
        """Wait until the heap stands."""
        self._answer("build the heap")

    def ask(self, question: str) -> dict[str, Any]:
        """Return the answer to ``round`` or ``count``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer that doesn't come says why
        return self._answer("look at it once")

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self, task: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._timeout_s)
        if not ready:
            raise NoAnswerError(f"did not {task} within {self._timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise NoAnswerError(self._death())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"ended with code {code}: {lines[-1] if lines else 'it said nothing'}"


@dataclass
class Series:
    """All calls of one tool on one heap."""

    tool: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    why_not: str = ""
    """Why it was not measured (to the end)."""

    def spent_s(self) -> float:
        return sum(call["seconds"] for call in self.calls)

    def seconds(self) -> list[float]:
        """Return the times of the calls after the first, where there are some."""
        return [call["seconds"] for call in self.calls[1:] or self.calls]


@dataclass
class Case:
    """One heap and what all tools made of it."""

    heap: str
    size: int
    series: list[Series]
    objects: dict[str, int] = field(default_factory=dict)
    """Objects by the engine's count: in the process, and from the root."""

    root_bytes: int = 0
    """What all that the root reaches weighs, by the engine."""

    def looked_at(self, series: Series) -> int | None:
        """Return how many objects there were for a tool to look at."""
        return self.objects.get("root" if TOOLS[series.tool].root_only else "process")

    def stopped_early(self, series: Series) -> bool:
        """Say whether a tool that adds up bytes found less than half of them."""
        return any(
            call["bytes"] is not None and call["bytes"] < self.root_bytes / 2
            for call in series.calls
        )

    def per_object_s(self, series: Series) -> float | None:
        """Return the median time for one object; None where that would mean nothing."""
        objects = self.looked_at(series)
        if not series.calls or not objects or self.stopped_early(series):
            return None
        return statistics.median(series.seconds()) / objects


def measure(case: Case, rounds: int, patience_s: float, timeout_s: float) -> None:
    """Fill in a case: every tool's first call, then ``rounds`` more."""
    measured = [series for series in case.series if not series.why_not]
    workers = {s.tool: Worker(case.heap, case.size, s.tool, timeout_s) for s in measured}
    try:
        for series in measured:
            _guarded(series, workers[series.tool].built)
        for number in range(rounds + 1):
            for series in measured if number % 2 == 0 else reversed(measured):
                if not series.why_not and not (series.calls and series.spent_s() > patience_s):
                    worker = workers[series.tool]
                    _guarded(series, lambda w=worker, s=series: s.calls.append(w.ask("round")))
        for series in measured:
            if series.tool == LEAKSCOPE and not series.why_not:
                _guarded(series, lambda: _count(case, workers[LEAKSCOPE]))
    finally:
        for worker in workers.values():
            worker.close()


def _count(case: Case, worker: Worker) -> None:
    counted = worker.ask("count")
    case.root_bytes = counted.pop("root_bytes")
    case.objects = counted


def _guarded(series: Series, step: Any) -> None:
    try:
        step()
    except NoAnswerError as failure:
        series.why_not = str(failure)


def report(case: Case) -> str:
    """Return a Markdown table: times as median (least–most) of the calls after the first."""
    counted = ""
    if case.objects:
        counted = "; {root:,} objects from its root, {process:,} in the process"
    lines = [f"\n### {case.heap}, {case.size:,}{counted.format(**case.objects)}"]
    rows = [_row(case, series) for series in case.series if series.calls]
    lines += (
        ["", HEADER, "| --- | --- | --- | --- | --- | --- | --- | --- |", *rows] if rows else []
    )
    lines += [f"\n{s.tool}: {s.why_not}." for s in case.series if s.why_not]
    lines += [
        f"\n{s.tool} stopped early: it saw {_mib(s.calls[0]['bytes'])} of {_mib(case.root_bytes)}."
        for s in case.series
        if case.stopped_early(s)
    ]
    own = next((s.calls[-1] for s in case.series if s.tool == LEAKSCOPE and s.calls), None)
    if own and case.objects:
        walk_s, scratch = own["figures"]["walk_s"], own["figures"]["scratch_bytes"]
        lines.append(
            f"\nOf leakscope's last census the walk took {walk_s:.3f} s and "
            f"{scratch / case.objects['process']:.1f} bytes of working memory per object."
        )
    return "\n".join(lines)


def _row(case: Case, series: Series) -> str:
    first, times = series.calls[0], series.seconds()
    median, objects = statistics.median(times), case.looked_at(series)
    per_object, reference = case.per_object_s(series), case.per_object_s(case.series[0])
    peaks = [call["peak_bytes"] for call in series.calls if call["peak_bytes"] is not None]
    cells = [
        series.tool,
        _mib(first["bytes"]) if first["objects"] is None else f"{first['objects']:,}",
        f"{first['seconds']:.3f} s",
        f"{median:.3f} s ({min(times):.3f}–{max(times):.3f})" if series.calls[1:] else "not asked",
        f"{per_object * 1e9:.0f}" if per_object else "–",
        f"{per_object / reference:.2f}" if per_object and reference else "–",
        f"{max(peaks) / objects:.1f}" if peaks and objects else "–",
        _mib(series.calls[-1]["after_bytes"] - first["before_bytes"]),
    ]
    return f"| {' | '.join(cells)} |"


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Return what was asked for, with the tools that can't be measured marked as such."""
    given = [int(size) for size in arguments.sizes.split(",")]
    sizes = {"mix": given, "plain": given}
    sizes.update({name: [size] for name, size in FIXED_SIZES.items()})
    return [
        Case(
            heap,
            size,
            [
                Series(tool.name, why_not=tool.missing(size))
                for tool in TOOLS.values()
                if tool.name == LEAKSCOPE or any(n in tool.name for n in arguments.only.split(","))
            ],
        )
        for heap in arguments.heaps.split(",")
        for size in sizes[heap]
    ]


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--sizes", default="100000,1000000", help="objects of the heaps `mix` and `plain`"
    )
    parser.add_argument("--heaps", default=",".join(HEAPS), help="the shapes to build")
    parser.add_argument("--rounds", type=int, default=3, help="calls after the first")
    parser.add_argument(
        "--only", default="", help="tools whose name has one of these in it, and leakscope"
    )
    parser.add_argument(
        "--patience", type=float, default=10, help="seconds after which a tool isn't asked again"
    )
    parser.add_argument(
        "--timeout", type=float, default=120, help="seconds that one answer may take"
    )
    parser.add_argument("--json", type=Path, help="write every call to this file")
    arguments = parser.parse_args()
    began = time.perf_counter()
    done = cases(arguments)
    print(f"{machine()}; {arguments.rounds} rounds after the first", flush=True)
    for case in done:
        measure(case, arguments.rounds, arguments.patience, arguments.timeout)
        print(report(case), flush=True)
    print(f"\nAll of it took {time.perf_counter() - began:.0f} s.")
    if arguments.json:
        rows = [
            {
                "heap": case.heap,
                "size": case.size,
                "objects": case.objects,
                "root_bytes": case.root_bytes,
                "tools": {s.tool: {"calls": s.calls, "why_not": s.why_not} for s in case.series},
            }
            for case in done
        ]
        arguments.json.write_text(json.dumps({"machine": machine(), "cases": rows}, indent=1))


if __name__ == "__main__":
    main()
