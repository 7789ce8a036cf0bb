"""``leakscope mcp``: run directories for agents, by the Model Context Protocol on stdin and stdout.

Everything here reads, and only runs below one directory: no path that an agent names leads out of
it, source lines come from the recordings and not from the disk, and nothing of a program is run.
Long results come in pages: a result has a handle, with which ``more`` returns the rest.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.output import PLACE, exit_codes, notify
from leakscope.cli.output import explain as explain_fault
from leakscope.cli.report import USUAL_BUDGET, conclude
from leakscope.model import __version__
from leakscope.model.errors import LeakscopeError, NoRunError

if TYPE_CHECKING:
    from leakscope.model.census import CensusRow
    from leakscope.model.report import Report
    from leakscope.model.run import Measurement, Run

USUAL_LIMIT = 50
MOST_AT_ONCE = 500
"""Rows or lines of a page."""
MOST_TOKENS = 50_000
MOST_KEPT = 64
"""Results whose further pages can be requested; the one that was used longest ago is dropped."""
MOST_REPORTS = 8
WIDTH = 120
"""Columns of a comparison."""
MOST_AROUND = 200
_INSTRUCTIONS = """\
Recorded runs of Python programs whose memory was profiled, with verdicts. Begin with list_runs, \
then explain(run): what grows, its line, how fast, what to change, what would prove that wrong, \
and the next command. why(run, name) tells how a verdict on a name came about, census_rows(run) \
what the heap held, source_lines(run, place) the recorded source. Nothing here runs or writes \
anything. A reply with a handle goes on: more(handle, cursor)."""
_NOT_INSTALLED = (
    "`leakscope mcp` needs the Python SDK of the Model Context Protocol, which leakscope's extra "
    "`mcp` installs: pip install 'mcp>=2'."
)
_EPILOG = """\b
Examples:
  leakscope mcp                        serves the runs in leakscope-runs
  leakscope mcp /data/runs             serves those below another folder
  claude mcp add leakscope -- leakscope mcp /data/runs     or as any other client starts servers

\b
A client starts it and talks to it on stdin and stdout (docs/agents.md). It needs the extra `mcp`:
pip install 'mcp>=2'. It only reads, and only below DIRECTORY.
""" + exit_codes(
    "the client has gone", "DIRECTORY is no folder, or is a run itself; the SDK isn't installed"
)


@click.command(epilog=_EPILOG)
@click.argument("directory", type=PLACE, required=False)
def mcp(directory: Path | None) -> None:
    """Serve runs to agents (Model Context Protocol).

    DIRECTORY is by default the folder in which `leakscope run` makes runs.
    """
    from leakscope.cli.runs import require_shelf
    from leakscope.configuration.project import read_configuration

    if directory is None:
        directory = read_configuration().value("runs")
        assert isinstance(directory, Path)
    else:
        require_shelf(directory)
    server = _server(RunTools(directory))
    if sys.stdin is not None and sys.stdin.isatty():
        notify(
            f"serves {directory} on stdin and stdout to a client that starts it; Ctrl-C ends it."
        )
    server.run()


def _server(tools: RunTools) -> Any:
    """Return a server of the SDK's that offers the tools.

    Raises:
        LeakscopeError: the SDK isn't installed, or is too old.

    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as fault:
        raise LeakscopeError(_NOT_INSTALLED) from fault

    def answering(tool: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tool)
        def answer(*arguments: Any, **named: Any) -> Any:
            try:
                with tools.lock:
                    return tool(*arguments, **named)
            except Exception as fault:
                raise ToolError(explain_fault(fault)) from fault

        return answer

    server = MCPServer(
        "leakscope",
        title="leakscope",
        instructions=_INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
    )
    reads = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    for tool in tools.offered():
        is_text = tool == tools.explain
        server.add_tool(
            answering(tool), annotations=reads, structured_output=False if is_text else None
        )
    return server


class RunTools:
    """What an agent may ask. Docstrings of what is offered are read by agents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.lock = threading.Lock()
        """Tools are called in threads; they share what was read."""
        self._pages = ResultPages()
        self._report_in = functools.lru_cache(MOST_REPORTS)(_report_in)
        self._run_in = functools.lru_cache(1)(_run_in)

    def offered(self) -> Sequence[Callable[..., Any]]:
        """Return the tools."""
        return (
            self.list_runs,
            self.explain,
            self.why,
            self.list_censuses,
            self.census_rows,
            self.source_lines,
            self.compare,
            self.what_next,
            self.more,
        )

    def list_runs(self, order: str = "newest", limit: int = USUAL_LIMIT) -> dict[str, Any]:
        """List the recorded runs with verdict, headline, what grows and how fast.

        `order` is newest, name, verdict, growth, peak or duration. Other tools take a run's `name`.
        """
        from leakscope.cli.runs import ORDERS, list_runs

        if order not in ORDERS:
            raise LeakscopeError(f"{order!r} is no order; use one of {', '.join(ORDERS)}.")
        listed = list_runs(self.directory, order).runs if self.directory.exists() else []
        return self._pages.first([self._listed(run) for run in listed], limit)

    def explain(self, run: str, budget: int = USUAL_BUDGET) -> str:
        """Explain a run in at most `budget` tokens: verdict, culprit, line, rate, deadline, change,
        evidence, what would prove it wrong, next command. Begin here.
        """
        from leakscope.report.explaining import explain_run, render_run_explanation_text

        folder = self.folder_of(run)
        budget = min(max(budget, 1), MOST_TOKENS)
        explained = explain_run(self._report(folder), str(folder), budget)
        return render_run_explanation_text(explained)

    def why(self, run: str, name: str, limit: int = USUAL_LIMIT) -> dict[str, Any]:
        """Tell how the verdict on a name came about: each rule, its figure and its threshold.

        `name` is a part of a culprit's name or path, or of a gauge or term of the ledger.
        """
        from leakscope.report.measuring import render_why

        if not name.strip():
            raise LeakscopeError("name is empty: give a part of a name that explain tells.")
        return self._pages.first(
            render_why(self._report(self.folder_of(run)), name).splitlines(), limit
        )

    def list_censuses(self, run: str, limit: int = USUAL_LIMIT) -> dict[str, Any]:
        """List the censuses of a run's main process: what the heap held, by name, at a moment."""
        taken = self._censuses(self.folder_of(run))
        return self._pages.first([_census(n, seen) for n, seen in enumerate(taken)], limit)

    def census_rows(
        self, run: str, census: int | None = None, name: str = "", limit: int = USUAL_LIMIT
    ) -> dict[str, Any]:
        """List what a census saw, the largest retained size first.

        `census` is a number from list_censuses; negative numbers count from the last. Without it
        the last census before the program's end is used. With `name` only rows are listed whose
        name, path or type contains it.
        """
        folder = self.folder_of(run)
        taken = self._censuses(folder)
        if census is None:
            census = self._at_work(folder, taken)
        if not -len(taken) <= census < len(taken):
            raise LeakscopeError(f"There is no census {census}; {run} has {len(taken)}.")
        number = census % len(taken)
        seen = taken[number].census
        assert seen is not None
        wanted = name.casefold()
        rows = [
            row
            for row in seen.rows
            if any(wanted in text.casefold() for text in (row.name, row.path, row.type))
        ]
        rows.sort(key=lambda row: -(row.host_bytes + sum(row.device_bytes.values())))
        return {
            "census": _census(number, taken[number]),
            **self._pages.first([_row(row) for row in rows], limit),
        }

    def source_lines(
        self, run: str, place: str = "", around: int = 15, limit: int = USUAL_LIMIT
    ) -> dict[str, Any]:
        """Return source as it was when the run was recorded, with line numbers.

        `place` is `file.py:123`, as other tools return it, for the lines around it, or `file.py`
        for all lines. Without a place the recorded files are listed. Only the program's own files
        are recorded, with their paths below the project's folder.
        """
        texts = self._sources(self.folder_of(run))
        if not place:
            return self._pages.first(sorted(texts), limit)
        file, _, number = place.rpartition(":")
        if not file or not number.isdecimal():
            file, number = place, ""
        if file not in texts:
            raise LeakscopeError(
                f"{file!r} is no file that was recorded of the program's project; without a place "
                "source_lines lists those that are."
            )
        lines = [f"{n} {text}" for n, text in enumerate(texts[file].splitlines(), 1)]
        if number:
            at, around = int(number), min(max(around, 0), MOST_AROUND)
            lines = lines[max(at - around - 1, 0) : at + around]
            limit = max(limit, len(lines))
        return {"file": file, **self._pages.first(lines, limit)}

    def compare(self, before: str, after: str, limit: int = 2 * USUAL_LIMIT) -> dict[str, Any]:
        """Compare two runs: what is fixed, reduced, unchanged, worse or new."""
        from leakscope.analysis import compare
        from leakscope.report import render_comparison_text

        reports = [self._report(self.folder_of(run)) for run in (before, after)]
        text = render_comparison_text(compare(*reports), width=WIDTH)
        return self._pages.first(text.splitlines(), limit)

    def what_next(self, run: str) -> dict[str, Any]:
        """Tell which commands to run next, the most useful first, and what would settle a run that
        is inconclusive. Words in capitals are to be replaced.
        """
        from leakscope.report.explaining import next_steps

        folder = self.folder_of(run)
        report = self._report(folder)
        return {
            "verdict": report.verdict.value,
            "steps": [
                {"aim": step.aim, "command": step.command}
                for step in next_steps(report, str(folder))
            ],
            "would_settle": list(report.missing),
        }

    def more(self, handle: str, cursor: int, limit: int = USUAL_LIMIT) -> dict[str, Any]:
        """Tell more of a long result: `handle` and `next_cursor` are those of the reply before."""
        return self._pages.page(handle, cursor, limit)

    def folder_of(self, run: str) -> Path:
        """Return the directory of a run by its name.

        Raises:
            LeakscopeError: the name leads out of what is served, or to no run.

        """
        from leakscope.recording.directory import holds_run

        name = PurePosixPath(run)
        if not name.parts or "\0" in run or name.is_absolute() or ".." in name.parts:
            raise LeakscopeError(
                f"{run!r} is refused: a run is named by its path below the served folder, as "
                "list_runs tells it, without `..`."
            )
        folder = self.directory
        for part in name.parts:
            folder /= part
            if folder.is_symlink():
                raise LeakscopeError(f"{run!r} is refused: {part} is a symbolic link.")
        links: list[str] = []
        with suppress(OSError):
            with os.scandir(folder) as entries:
                links = [entry.name for entry in entries if entry.is_symlink()]
            if not links and holds_run(folder):
                return folder
        if links:
            raise LeakscopeError(f"{run!r} is refused: {links[0]} in it is a symbolic link.")
        raise NoRunError(f"There is no run {run!r}; list_runs tells which there are.")

    def _listed(self, run: Any) -> dict[str, Any]:
        """Return a run's entry in a list; of a run that is refused, why."""
        try:
            self.folder_of(run.name)
        except LeakscopeError as fault:
            return {"name": run.name, "standing": "refused", "remark": str(fault)}
        entry = _facts(run, "name", "headline", "remark", "ended", "script", "created")
        entry |= _facts(run, "duration_s", "peak_bytes")
        entry |= {"standing": run.standing.value, "verdict": run.verdict and run.verdict.value}
        if run.top_culprit is not None:
            entry |= {
                "culprit": run.top_culprit.name,
                **_facts(run.top_culprit, "bytes_per_unit", "unit"),
            }
        return _without_empty(entry)

    def _report(self, folder: Path) -> Report:
        return self._report_in(folder, _state_of(folder))

    def _read(self, folder: Path) -> Run:
        return self._run_in(folder, _state_of(folder))

    def _censuses(self, folder: Path) -> list[Measurement]:
        return [seen for seen in self._read(folder).main.measurements if seen.census is not None]

    def _at_work(self, folder: Path, taken: Sequence[Measurement]) -> int:
        """Return the number of the last census before functions returned at the program's end."""
        retained = self._report(folder).retained
        if retained is None:
            return -1
        last = retained.censuses[retained.shown].boundary.index
        return next((n for n, seen in enumerate(taken) if seen.boundary.index == last), -1)

    def _sources(self, folder: Path) -> dict[str, str]:
        """Return the texts of the program's own files by their paths below its project's folder."""
        run = self._read(folder)
        root = run.manifest.project_root
        found: dict[str, str] = {}
        for recording in run.recordings:
            for path, text in recording.sources.items():
                whole = PurePosixPath(os.path.normpath(path))
                if root and whole.is_relative_to(root):
                    found.setdefault(str(whole.relative_to(root)), text)
        return found


class ResultPages:
    """Long results, kept for those who ask for their further pages."""

    def __init__(self) -> None:
        self._results: OrderedDict[str, Sequence[Any]] = OrderedDict()
        self._numbers = itertools.count(1)

    def first(self, items: Sequence[Any], limit: int) -> dict[str, Any]:
        """Return the first page of a result, with a handle where there are more."""
        handle = f"r{next(self._numbers)}"
        self._results[handle] = items
        page = self.page(handle, 0, limit)
        if "next_cursor" not in page:
            del self._results[handle], page["handle"]
        while len(self._results) > MOST_KEPT:
            self._results.popitem(last=False)
        return page

    def page(self, handle: str, cursor: int, limit: int) -> dict[str, Any]:
        """Return the page that begins at a cursor.

        Raises:
            LeakscopeError: nothing is kept under this handle, or the cursor lies outside of it.

        """
        if handle not in self._results:
            raise LeakscopeError(f"{handle!r} is no handle any more: ask for the result once more.")
        self._results.move_to_end(handle)
        items = self._results[handle]
        if not 0 <= cursor <= len(items):
            raise LeakscopeError(f"cursor {cursor} lies outside of 0 to {len(items)}.")
        end = cursor + min(max(limit, 1), MOST_AT_ONCE)
        page = {"items": items[cursor:end], "total": len(items), "handle": handle}
        return page | ({"next_cursor": end} if end < len(items) else {})


def _state_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes when a run does, which may still be recorded."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    states = [(file.name, file.stat()) for file in files]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _report_in(folder: Path, _: object) -> Report:
    return conclude(folder)


def _run_in(folder: Path, _: object) -> Run:
    from leakscope.cli.many_ranks import open_leading

    return open_leading(folder)


def _census(number: int, seen: Measurement) -> dict[str, Any]:
    boundary, census = seen.boundary, seen.census
    assert census is not None
    return {
        "census": number,
        "boundary": boundary.index,
        "kind": boundary.kind.value,
        **_facts(boundary, "phase", "epoch", "step", "time_s"),
        "scope": census.scope.value,
        "rows": len(census.rows),
        **_facts(census, "objects", "cutoff_bytes"),
    }


def _row(row: CensusRow) -> dict[str, Any]:
    entry = _facts(row, "name", "path", "type", "host_bytes", "device_bytes", "count", "length")
    entry |= _facts(row, "capacity", "role", "also_held_by", "parent")
    entry["holds"] = [f"{c.count} × {c.type} {c.detail}".rstrip() for c in row.holds]
    return _without_empty(entry)


def _facts(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value not in (None, "", [], {})}
