"""The IPython magics ``%%leakscope`` and ``%leakscope``."""

from __future__ import annotations

import argparse
import ast
import inspect
import shlex
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from leakscope.capture.scope import profile
from leakscope.capture.session import current_session
from leakscope.model.errors import LeakscopeError
from leakscope.notebook import RunAnswer, run

_MAGIC = "%%leakscope"


def load_ipython_extension(shell: Any) -> None:
    """Register the magics with a shell."""
    shell.register_magics(LeakscopeMagics)


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}\n{self.format_usage()}")


@magics_class
class LeakscopeMagics(Magics):  # type: ignore[misc]
    """``%%leakscope`` and ``%leakscope``."""

    _last: Path | None = None

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
        try:
            with scope:
                path = scope.run_path
                for part in code:
                    exec(part, self.shell.user_ns)  # noqa: S102
        finally:
            if path is not None and not joined:
                self._last = path
                display(run(path))

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
