"""The table of DataLoader workers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakscope.model.report import Culprit, Severity
from leakscope.model.sizes import human_bytes, plural
from leakscope.model.worker import WorkerMemory
from leakscope.report.sizes import humane_number, humane_rate
from leakscope.report.tables import Cell, cell_of

_STARTED = {"fork": "forked", "spawn": "spawned", "forkserver": "forked by a server"}


@dataclass(frozen=True)
class WorkerRow:
    """One worker's process."""

    name: str
    """``loader 1, worker 0``, after the rank where there are several."""
    detail: str
    """How and when it was started, its process id."""
    batches: str
    share: Cell | None
    first: Cell | None
    last: Cell | None
    written: Cell | None
    grows: list[str]
    copies: list[str]
    memory: str = ""
    """Where on the page its memory is shown; empty where it isn't."""


def named_in_workers(culprits: Sequence[Culprit]) -> str:
    """Return what grows in workers by name, at the rate of all of them; empty where nothing does.

    It makes up growth of child processes; no ledger of this process can measure how much.
    """
    told = [
        f"{c.name} by {humane_rate(c.bytes_per_unit * c.workers, c.unit)}"
        f" in {plural(c.workers, 'worker')}"
        for c in culprits
        if c.workers and c.severity is not Severity.NOTE and c.growth == "across"
    ]
    return f"in DataLoader workers: {', '.join(told)}" if told else ""


def worker_rows(
    workers: Sequence[WorkerMemory], places: Mapping[tuple[int, int], str] | None = None
) -> list[WorkerRow]:
    """Return one row a worker; all bars share one scale.

    ``places`` tell where on the page the memory of a process is shown, by rank and process id.
    """
    sizes = (s for w in workers for s in (w.pss_bytes, w.private_first_bytes, w.private_last_bytes))
    top = max((size for size in sizes if size), default=0)
    known = places or {}
    return [_row(worker, top, known.get((worker.rank, worker.pid), "")) for worker in workers]


def _row(worker: WorkerMemory, top: int, memory: str) -> WorkerRow:
    rank = f"rank {worker.rank}, " if worker.rank else ""
    started = _STARTED.get(worker.start_method, "started")
    again = f" in its loader's pass {worker.generation + 1}" if worker.generation else ""
    return WorkerRow(
        name=f"{rank}loader {worker.loader}, worker {worker.worker}",
        detail=f"{started}{again}, process {worker.pid}{_ahead(worker)}",
        batches=humane_number(worker.batches),
        share=_cell(worker.pss_bytes, top, "peak"),
        first=_cell(worker.private_first_bytes, top),
        last=_cell(worker.private_last_bytes, top),
        written=_cell(worker.written_last_bytes, top),
        grows=worker.grows,
        copies=worker.copies,
        memory=memory,
    )


def _ahead(worker: WorkerMemory) -> str:
    if not worker.prefetch or not worker.batch_bytes:
        return ""
    batches = plural(worker.prefetch, "batch")
    return f", {batches} of {human_bytes(worker.batch_bytes)} ahead at most"


def _cell(size: int | None, top: int, kind: str = "") -> Cell | None:
    if size is None:
        return None
    return cell_of(size, top, kind)
