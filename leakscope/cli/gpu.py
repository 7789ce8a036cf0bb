"""``leakscope gpu``: who uses each GPU, what is left over, and what can be freed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from leakscope.cli.output import say, terminal_width
from leakscope.model.errors import EXIT_ERROR

if TYPE_CHECKING:
    from leakscope.cleanup.survey import GpuProcess, GpuSurvey

_EPILOG = """\b
Examples:
  leakscope gpu                every process on each GPU, and what can be freed
  leakscope gpu --stats-only   the figures alone
  leakscope gpu --force        asks, one by one, whether to end what is left over

\b
Left over is only what is certain: your own Python process that holds a GPU, was started by
torchrun, multiprocessing, a DataLoader or Jupyter, and has lost that parent to init. A background
job has no parent either, so what only looks left over is shown and never ended.

\b
--force ends a leftover only if its number is typed in answer to the question, in a terminal. It is
asked to end (SIGTERM) after it was looked at once more. Nothing else is ever ended.

\b
Exit codes:
  0  told
  1  there is no GPU that can be asked, or --force had no terminal to ask in
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG)
@click.option("--stats-only", is_flag=True, help="Figures and processes, without advice.")
@click.option("--force", is_flag=True, help="Ask for each leftover whether to end it.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def gpu(*, stats_only: bool, force: bool, as_json: bool) -> None:
    """Show every process on each GPU, what is left over, and what can be freed."""
    if force and (as_json or stats_only):
        raise click.UsageError("--force asks questions: it can't go with --json or --stats-only.")
    from leakscope.cleanup.survey import survey_gpus, survey_lines

    survey = survey_gpus()
    if as_json:
        click.echo(_json(survey))
    elif survey.gpus:
        width = terminal_width(100)
        click.echo("\n".join(survey_lines(survey, width=width, advise=not stats_only)))
    if not survey.gpus:
        say(survey.remark or "No GPU.")
        raise SystemExit(EXIT_ERROR)
    if force:
        _end_leftovers(list(survey.leftovers.values()))


def _json(survey: GpuSurvey) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(survey), indent=1).decode()


def _end_leftovers(leftovers: list[GpuProcess]) -> None:
    from leakscope.cleanup.survey import end_leftover

    if not leftovers:
        say("nothing is left over, so nothing was ended.")
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say("nothing was ended: --force asks for each process, and this is no terminal.")
        raise SystemExit(EXIT_ERROR)
    for process in leftovers:
        command = process.facts.command if process.facts else ""
        click.echo(f"\n{process.pid}: {command}\n  {process.judgement.reason}")
        answer = click.prompt(
            f"Type {process.pid} to end it, anything else to leave it",
            default="",
            show_default=False,
        )
        ended = end_leftover(process) if answer.strip() == str(process.pid) else "Left alone."
        click.echo(ended)
