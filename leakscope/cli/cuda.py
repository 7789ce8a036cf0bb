"""``leakscope cuda``: explain snapshots of torch's CUDA allocator, without torch or a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leakscope.cli.output import (
    format_of,
    format_option,
    is_stdout,
    out_option,
    print_text,
    shows_color,
    terminal_width,
    write_output,
)
from leakscope.model.errors import NoSnapshotError

if TYPE_CHECKING:
    from leakscope.model.allocator import AllocatorSnapshot
    from leakscope.model.explanation import Explanation, SnapshotComparison

_EPILOG = """\b
Examples:
  leakscope cuda snapshot.pickle                       explains it in the terminal
  leakscope cuda snapshot.pickle --out page.html       writes a page with a map of the memory
  leakscope cuda step1.pickle step2.pickle step3.pickle    what grew between them

\b
A snapshot is what torch.cuda.memory._dump_snapshot("snapshot.pickle") writes, of torch 2.0 or
newer; a pickle or JSON of memory_snapshot() or _snapshot(), gzipped or not. Nothing in the file is
executed.

\b
Exit codes:
  0  explained
  1  a file is no snapshot, or can't be read or written
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG)
@click.argument(
    "snapshots", metavar="SNAPSHOT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@format_option("text")
@out_option()
@click.option("--device", type=click.IntRange(min=0), default=None, help="Only this device.")
def cuda(
    snapshots: tuple[Path, ...], *, form: str | None, out: Path | None, device: int | None
) -> None:
    """Explain a snapshot of torch's CUDA allocator, or what grew between several.

    What is live and for what, cache and holes told apart, the peak, and why memory ran out.
    """
    from leakscope.analysis.allocator import compare_snapshots, explain, read_snapshot

    form = form or format_of(out, "text")
    read = [read_snapshot(path) for path in snapshots]
    check_device(read, device)
    document: Explanation | SnapshotComparison = (
        explain(read[0], device) if len(read) == 1 else compare_snapshots(read, device)
    )
    write_output(_rendered(document, form, out), out, form)
    if not is_stdout(out):
        print_text(f"leakscope: {document.headline}\nleakscope: explanation in {out}")


def check_device(snapshots: list[AllocatorSnapshot], device: int | None) -> None:
    """Refuse a device that none of the snapshots holds.

    Raises:
        NoSnapshotError: there is no such device.

    """
    known = sorted({number for snapshot in snapshots for number in snapshot.devices})
    if device is not None and device not in known:
        content = ", ".join(f"cuda:{number}" for number in known) or "no device's memory"
        raise NoSnapshotError(
            f"There is no cuda:{device} in it; it holds {content}.", slug="no-device"
        )


def _rendered(document: Explanation | SnapshotComparison, form: str, out: Path | None) -> str:
    from leakscope.report import (
        render_snapshot_html,
        render_snapshot_json,
        render_snapshot_text,
    )

    if form == "html":
        return render_snapshot_html(document)
    if form == "json":
        return render_snapshot_json(document)
    return render_snapshot_text(document, width=terminal_width(100), color=shows_color(out))
