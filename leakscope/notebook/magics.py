"""The IPython magics ``%%leakscope`` and ``%leakscope``."""

from __future__ import annotations

import argparse
import ast
import inspect
import shlex
import sys
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from leakscope.capture.scope import profile
from leakscope.capture.session import current_session
from leakscope.heap import CensusTaker
from leakscope.model.census import OUTPUT_HISTORY, CensusScope
from leakscope.model.errors import LeakscopeError, ours
from leakscope.model.text import human_bytes
from leakscope.notebook import RunAnswer, run

_MAGIC = "%%leakscope"


def load_ipython_extension(shell: Any) -> None:
    """Register the magics with a shell."""
    shell.register_magics(LeakscopeMagics)


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}\n{self.format_usage()}")


LEAST_LEFT = 16 << 10
"""What gained less is not named."""
MOST_LEFT = 5
RUNS_FOR_A_VERDICT = 3
SAME_PACE = 4
"""Growth goes on where no run of a cell brought so many times as much as another."""
MOST_CELLS = 64
MOST_RUNS = 20


class LeftBehind:
    """What cells leave behind, by name: censuses before and after each that is recorded."""

    def __init__(self) -> None:
        self._taker = CensusTaker(project_root=str(Path.cwd()), cutoff_bytes=LEAST_LEFT // 4)
        self._before: dict[str, int] | None = None
        self._after: dict[str, int] | None = None
        """What names held after the last of them."""
        self._runs: OrderedDict[str, list[dict[str, int]]] = OrderedDict()
        """What names held after each run of a cell, by its text."""

    def begin(self) -> list[str]:
        """Look before a cell is run; return what came since the last that was recorded."""
        self._before = before = self._retained()
        if before is None or self._after is None:
            return []
        since = _largest({name: before[name] - self._after.get(name, 0) for name in before})
        return [f"since the last recorded cell: {since}"] if since else []

    def end(self, cell: str, number: int) -> list[str]:
        """Look after it; return the lines to print."""
        before = self._before
        self._before, self._after = None, (after := self._retained())
        if before is None or after is None:
            return []
        runs = self._runs.pop(cell, [])
        self._runs[cell] = runs = [*runs, after][-MOST_RUNS:]
        if len(self._runs) > MOST_CELLS:
            self._runs.popitem(last=False)
        gained = {name: after[name] - before.get(name, 0) for name in after}
        left = _largest({_of_cell(name, number): size for name, size in gained.items()})
        lines = [f"left behind: {left}"] if left else []
        return lines + per_run(runs)

    def _retained(self) -> dict[str, int] | None:
        """Return the bytes that each name of the user's, and what IPython keeps, holds."""
        try:
            census = self._taker.take(CensusScope.FULL)
        except ours(Exception):
            return None
        retained: dict[str, int] = {}
        for row in census.rows:
            if not row.parent and (row.user or row.name.startswith(_KEEPERS)):
                size = row.host_bytes + sum(row.device_bytes.values())
                retained[row.name] = retained.get(row.name, 0) + size
        return retained


_KEEPERS = ("sys.last_", "IPython.")
"""What libraries keep for a notebook: the last exception with its frames, the shell's own."""


def per_run(runs: list[dict[str, int]]) -> list[str]:
    """Return the verdict on a cell that was run several times: what each run adds to what."""
    if len(runs) < RUNS_FOR_A_VERDICT:
        return []
    recent = runs[-max(RUNS_FOR_A_VERDICT, len(runs) // 2 + 1) :]
    growing: dict[str, int] = {}
    for name in recent[-1]:
        rises = [b.get(name, 0) - a.get(name, 0) for a, b in pairwise(recent)]
        if min(rises) >= max(LEAST_LEFT, max(rises) / SAME_PACE):
            spoken = "Out" if name == OUTPUT_HISTORY else name
            growing[spoken] = sorted(rises)[len(rises) // 2]
    if not growing:
        return [f"✓ per run of this cell ({len(runs)} runs): nothing grows with each"]
    return [f"✗ per run of this cell ({len(runs)} runs): {_largest(growing)}"]


def _largest(gained: dict[str, int]) -> str:
    """Return ``old_models +566 KiB, Out[7] +400 KiB``, the largest first."""
    named = [(name, size) for name, size in gained.items() if size >= LEAST_LEFT]
    named.sort(key=lambda each: -each[1])
    return ", ".join(f"{name} +{human_bytes(size)}" for name, size in named[:MOST_LEFT])


def _of_cell(name: str, number: int) -> str:
    return f"Out[{number}]" if name == OUTPUT_HISTORY else name


@magics_class
class LeakscopeMagics(Magics):  # type: ignore[misc]
    """``%%leakscope`` and ``%leakscope``."""

    _last: Path | None = None
    _left: LeftBehind | None = None

    @line_cell_magic  # type: ignore[untyped-decorator]
    def leakscope(self, line: str, cell: str | None = None) -> RunAnswer | None:
        """Record a cell and show what came of it; without a cell, say where things stand.

        ``%%leakscope [--out DIR] [--force] [--budget 1%] [--label TEXT] [--tracker NAME]``

        ``%leakscope [RUN]``
        """
        try:
            if cell is None:
                return self._status(line)
            self._record(line, cell)
            return None
        except LeakscopeError as fault:
            raise UsageError(str(fault)) from None

    def _record(self, line: str, cell: str) -> None:
        options = _cell_arguments().parse_args(shlex.split(line))
        code = self._compiled(cell)
        left = self._left = self._left or LeftBehind()
        scope = profile(
            options.out,
            force=options.force,
            budget=options.budget,
            label=options.label,
            trackers=options.tracker or None,
            quiet=True,
        )
        path: Path | None = None
        joined = current_session() is not None
        lines = [] if joined else left.begin()
        try:
            with scope:
                path = scope.run_path
                for part in code:
                    exec(part, self.shell.user_ns)  # noqa: S102
        finally:
            if path is not None and not joined:
                lines += left.end(cell, _number_of_cell(self.shell))
                self._last = path
                display(run(path))
                for line in lines:
                    print(line)

    def _compiled(self, cell: str) -> list[Any]:
        """Return the cell's code, its last expression by itself so that its value is shown.

        Lines are counted as in the notebook: the magic's is the first.
        """
        shell = self.shell
        text = shell.transform_cell(cell if cell.startswith("%%") else f"# {_MAGIC}\n{cell}")
        name = shell.compile.cache(text, _number_of_cell(shell), raw_code=f"{_MAGIC}\n{cell}")
        tree = shell.compile.ast_parse(text, filename=name)
        tree = shell.transform_ast(tree)
        _refuse_await(tree, name)
        is_shown = not DisplayHook.semicolon_at_end_of_expression(text)
        ends_in_value = bool(tree.body) and isinstance(tree.body[-1], ast.Expr)
        last = [tree.body.pop()] if is_shown and ends_in_value else []
        code = [shell.compile(tree, name, "exec")]
        return code + [shell.compile(ast.Interactive(last), name, "single")] * bool(last)

    def _status(self, line: str) -> RunAnswer | None:
        named = shlex.split(line)
        if named:
            return run(named[0])
        session = current_session()
        if session is not None and session.is_live:
            print(f"recording into {session.run_path}")
            return None
        if self._last is not None:
            return run(self._last)
        print(f"nothing is recorded: {_MAGIC} above a cell records it")
        return None


def _refuse_await(tree: ast.Module, name: str) -> None:
    code = compile(tree, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        raise UsageError(
            f"{_MAGIC} can't wait for a cell with await outside a function: write "
            "`with leakscope.profile():` around its code instead."
        )


def _number_of_cell(shell: Any) -> int:
    """Return the number of the cell that runs now, as its prompt has it."""
    numbers = getattr(shell.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in numbers:
            return int(numbers[frame.f_code.co_filename])
        frame = frame.f_back
    return int(shell.execution_count)


def _cell_arguments() -> argparse.ArgumentParser:
    parser = _Arguments(prog=_MAGIC, add_help=False)
    parser.add_argument("--out")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--budget")
    parser.add_argument("--label")
    parser.add_argument("--tracker", action="append")
    return parser
