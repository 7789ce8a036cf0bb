"""``leakscope merge``: one run out of the directories into which its ranks were recorded."""

from __future__ import annotations

from pathlib import Path

import click

_EPILOG = """\b
Examples:
  leakscope merge node0/run node1/run --out run

\b
Machines without a shared disk have a directory each. The recordings are copied; what is merged
stays as it is.

\b
Exit codes:
  0  merged
  1  one of them is no run, they don't belong together, or nothing could be written
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", required=True, type=click.Path(path_type=Path), help="Run directory.")
@click.option("--force", is_flag=True, help="Replace a run that --out holds already.")
def merge(runs: tuple[Path, ...], *, out: Path, force: bool) -> None:
    """Put the recordings of RUNS, ranks of one training, into one run directory."""
    from leakscope.cli.report import conclude, write_reports
    from leakscope.recording.merging import merge_runs

    merged = merge_runs(runs, out, force=force)
    page = write_reports(merged.path, conclude(merged.path))
    click.echo(
        f"leakscope: {len(runs)} runs merged into {merged.path}\nleakscope: report in {page}"
    )
