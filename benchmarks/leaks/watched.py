"""Runs a program with a tool that looks from within, and writes down what the tool prints.

    python benchmarks/leaks/watched.py TOOL OUTPUT PROGRAM

The tool looks whenever the program has printed a line: all programs of the pairs print their
progress, at equal parts of their work. So looks stand where a user would call the tool, and at the
same work in the leaking release and in the repaired one.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FRAMES, ROWS = 25, 10
"""Frames of a stack, as in the example of tracemalloc's documentation, and rows that are read."""


class LookAfterLines:
    """A standard output that calls a function after each line."""

    def __init__(self, under: Any, look: Callable[[], None]) -> None:
        self._under, self._look = under, look

    def write(self, text: str) -> int:
        written = self._under.write(text)
        if "\n" in text:
            self._look()
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


def tracemalloc_looks() -> tuple[Callable[[], None], Callable[[], Any]]:
    import tracemalloc

    tracemalloc.start(FRAMES)
    snapshots: list[Any] = []

    def look() -> None:
        gc.collect()
        ours = [tracemalloc.Filter(False, name) for name in (tracemalloc.__file__, __file__)]
        snapshots[1:] = [tracemalloc.take_snapshot().filter_traces(ours)]

    def printed() -> str:
        if len(snapshots) < 2:
            return ""
        statistics = snapshots[1].compare_to(snapshots[0], "traceback")[:ROWS]
        return "--\n".join(
            f"size_diff={statistic.size_diff} count_diff={statistic.count_diff}\n"
            + "\n".join(statistic.traceback.format())
            + "\n"
            for statistic in statistics
        )

    return look, printed


def printing_looks(
    show: Callable[[], None],
) -> tuple[Callable[[], None], Callable[[], Any]]:
    """Return looks that keep what a function prints each time."""
    looks: list[str] = []

    def look() -> None:
        gc.collect()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            show()
        looks.append(output.getvalue())

    return look, lambda: looks


def objgraph_looks() -> tuple[Callable[[], None], Callable[[], Any]]:
    import objgraph

    peaks: dict[str, int] = {}
    return printing_looks(
        lambda: objgraph.show_growth(limit=ROWS, peak_stats=peaks, shortnames=True)
    )


def pympler_looks() -> tuple[Callable[[], None], Callable[[], Any]]:
    from pympler.tracker import SummaryTracker

    tracker = SummaryTracker()
    return printing_looks(tracker.print_diff)


def guppy_looks() -> tuple[Callable[[], None], Callable[[], Any]]:
    from guppy import hpy

    heap = hpy()
    tables: list[str] = []

    def look() -> None:
        if not tables:
            heap.setrelheap()
            tables.append("")
        else:
            tables[1:] = [str(heap.heap())]

    return look, lambda: tables[-1] if tables else ""


TOOLS = {
    "tracemalloc": tracemalloc_looks,
    "objgraph": objgraph_looks,
    "pympler": pympler_looks,
    "guppy3": guppy_looks,
}


def main() -> None:
    tool, output, program = sys.argv[1:4]
    sys.argv = [program]
    sys.path[0] = str(Path(program).parent)
    look, printed = TOOLS[tool]()
    plain = sys.stdout
    sys.stdout = LookAfterLines(plain, look)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.stdout = plain
        Path(output).write_text(json.dumps(printed()))


if __name__ == "__main__":
    main()
