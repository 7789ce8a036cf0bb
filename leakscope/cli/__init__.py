"""The ``leakscope`` command: runs and their reports, CUDA snapshots, who uses the GPUs.

Exit codes: ``run`` ends exactly as the program did. Otherwise 0 is success, 1 a fault that one
sentence on stderr explains, 2 an invalid command line or a threshold that was met;
``snapshot`` has two more, ``attach`` one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

import click

from leakscope.cli.output import exit_code_of
from leakscope.model import __version__

__all__ = ["leakscope", "main"]

_EPILOG = """\b
Examples:
  leakscope run train.py --epochs 10
  leakscope attach 4711 --for 10m
  leakscope runs --sort verdict
  leakscope show leakscope-runs/20250101-120000-train --follow
  leakscope report leakscope-runs/20250101-120000-train --format text
  leakscope explain leakscope-runs/20250101-120000-train
  leakscope compare runs/before runs/after --fail-on new,worse
  leakscope verify runs/before --remedy 1
  leakscope check runs/after --baseline leaks.json
  leakscope cuda snapshot.pickle
  leakscope gpu
  leakscope monitor --pid 4711
  leakscope mcp leakscope-runs
  leakscope doctor
  leakscope snapshot 4711

\b
Exit codes: `run` ends as its program does; the other commands end with
  0  all is well
  1  a fault, explained by one sentence on stderr (LEAKSCOPE_DEBUG=1 adds the traceback)
  2  an invalid command line, --fail-on was met, check fails, or verify finds no fix
  3  `snapshot`: no census was taken in time; `attach`: no safe point was reached in time
  4  `snapshot`: the process ended meanwhile
"""


_COMMANDS = (
    "run", "attach", "runs", "show", "snapshot", "monitor", "report", "explain", "compare",
    "verify", "check", "merge", "mcp", "cuda", "gpu", "doctor",
)  # fmt: skip
_MODULES = {
    "cuda": "gpu", "show": "runs", "merge": "runs", "compare": "runs", "explain": "report",
}  # fmt: skip
"""Where small commands live; the module of any other has its name."""


class _Commands(click.Group):
    """Imports a command when it is called: ``run`` stays small, for it lives through a training."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"leakscope.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="leakscope %(version)s")
def leakscope() -> None:
    """Find out why a Python program's memory grows, a PyTorch training's above all."""


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = leakscope.main(prog_name="leakscope", standalone_mode=False)
    except BaseException as fault:
        code = exit_code_of(fault)
    sys.exit(code)
