"""Commands about GPUs.

``leakscope gpu`` shows who uses each, what is left over and what can be freed; ``leakscope cuda``
explains snapshots of torch's CUDA allocator, without torch or a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leakscope.cli.output import (
    PLACE,
    exit_codes,
    looks,
    notify,
    output_options,
    terminal_width,
    write_document,
)
from leakscope.model.errors import EXIT_ERROR, NoSnapshotError

if TYPE_CHECKING:
    from leakscope.cleanup.survey import GpuProcess
    from leakscope.model.explanation import Explanation, SnapshotComparison

_GPU_EPILOG = """\b
Examples:
  leakscope gpu                every process on each GPU, and what can be freed
  leakscope gpu --stats-only   the figures alone
  leakscope gpu --force        asks for each leftover process whether to end it

\b
A process counts as left over only if that is certain: it is your own Python process, holds a GPU,
was started by torchrun, multiprocessing, a DataLoader or Jupyter, and that parent has ended. A
background job has no parent either, so a process that only looks left over is shown, never ended.

\b
--force ends a leftover process only if its number is typed in answer to the question, in a
terminal. It is checked once more, then sent SIGTERM. Nothing else is ever ended.
""" + exit_codes("shown", "no GPU can be queried, or --force had no terminal to ask in")


@click.command(epilog=_GPU_EPILOG)
@click.option("--stats-only", is_flag=True, help="Figures and processes, without advice.")
@click.option("--force", is_flag=True, help="Ask for each leftover process whether to end it.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def gpu(*, stats_only: bool, force: bool, as_json: bool) -> None:
    """Show who uses each GPU, and what can be freed."""
    if force and (as_json or stats_only):
        raise click.UsageError("--force asks questions: it can't go with --json or --stats-only.")
    from leakscope.cleanup.survey import survey_gpus, survey_lines

    survey = survey_gpus()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(survey), indent=1).decode())
    elif survey.gpus:
        width = terminal_width(100)
        click.echo("\n".join(survey_lines(survey, width=width, advise=not stats_only)))
    if not survey.gpus:
        notify(survey.remark or "No GPU.")
        raise SystemExit(EXIT_ERROR)
    if force:
        _end_leftovers(list(survey.leftovers.values()))


def _end_leftovers(leftovers: list[GpuProcess]) -> None:
    from leakscope.cleanup.survey import end_leftover

    if not leftovers:
        notify("nothing is left over, so nothing was ended.")
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        notify("nothing was ended: --force asks for each process, and this is no terminal.")
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


_CUDA_EPILOG = """\b
Examples:
  leakscope cuda snapshot.pickle                       explains it in the terminal
  leakscope cuda snapshot.pickle --out page.html       writes a page with a map of the memory
  leakscope cuda step1.pickle step2.pickle step3.pickle    what grew between them

\b
A snapshot is what torch.cuda.memory._dump_snapshot("snapshot.pickle") writes, of torch 2.0 or
newer, or a pickle or JSON of memory_snapshot() or _snapshot(), gzipped or not. Nothing in the file
is executed.
""" + exit_codes("explained", "a file is no snapshot, or can't be read or written")


@click.command(epilog=_CUDA_EPILOG)
@click.argument("snapshots", metavar="SNAPSHOT...", nargs=-1, required=True, type=PLACE)
@output_options("text")
@click.option("--device", type=click.IntRange(min=0), default=None, help="Only this device.")
def cuda(snapshots: tuple[Path, ...], *, form: str, out: Path | None, device: int | None) -> None:
    """Explain snapshots of torch's CUDA allocator.

    Of one: what is live and for what, cache, holes, the peak, and why memory ran out. Of several:
    what grew between them.
    """
    from leakscope import report  # each form imports what it needs
    from leakscope.analysis.allocator import compare_snapshots, explain, read_snapshot

    read = [read_snapshot(path) for path in snapshots]
    known = sorted({number for snapshot in read for number in snapshot.devices})
    if device is not None and device not in known:
        content = ", ".join(f"cuda:{number}" for number in known) or "no device's memory"
        raise NoSnapshotError(f"There is no cuda:{device} in it; it holds {content}.")
    document: Explanation | SnapshotComparison = (
        explain(read[0], device) if len(read) == 1 else compare_snapshots(read, device)
    )
    write_document(
        "explanation",
        document,
        form,
        out,
        html=lambda: report.render_snapshot_html(document),
        text=lambda: report.render_snapshot_text(document, **looks(out)),
    )
