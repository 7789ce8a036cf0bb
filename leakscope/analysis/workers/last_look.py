"""What a worker held when it was looked into last, where that was too seldom for a verdict.

On a busy machine, or where its dataset is large, a worker's heap may be walked once as it starts
and again a minute later. That convicts nothing, but the worker's own memory is read oftener: of
child processes that grow it is told what made up most of what one of them had gained.

May be confused with: what a worker inherited, which the first look has shown already.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.series import HOST
from leakscope.analysis.severity import MIB
from leakscope.analysis.workers.judged import WAY, Worker
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.report import Finding, Remedy
from leakscope.model.sizes import human_bytes

WORTH_BYTES = 8 * MIB
MOST_OF_IT = 0.5
"""Of what the worker had gained by then a container must make up so much to be told of."""
CARRIES = 0.7
"""A container that carries so much of what its owner gained is told of instead of the owner."""
CHILDREN = "children"


@dataclass(frozen=True)
class LastLook:
    """A container that a worker had come to hold when it was looked into last."""

    worker: Worker
    row: CensusRow
    time_s: float
    """Since the worker started."""
    held: float
    """Bytes that it had more than at the first look."""
    gained: float
    """By how much the worker's own memory had grown."""


def with_last_look(findings: list[Finding], workers: list[Worker]) -> list[Finding]:
    """Return the findings; that of child processes which grow tells what was in one of them."""
    looks = [look for worker in workers if (look := last_look(worker)) is not None]
    most = max(looks, key=lambda look: look.held, default=None)
    if most is None:
        return findings
    return [_told(found, most) if found.kind == CHILDREN else found for found in findings]


def last_look(worker: Worker) -> LastLook | None:
    """Return what most of a worker's own growth was at the last look; None where nothing was."""
    track, table = worker.case.track, worker.case.table
    read = track.known(gauge.PRIVATE)
    if len(table.at) < 2 or len(read) < 2:
        return None
    private, looked = track.gauge(gauge.PRIVATE)[read], float(track.time_s[table.at[-1]])
    gained = float(np.interp(looked, track.time_s[read], private) - private[0])
    sizes = np.nan_to_num(table.retained[HOST]) if HOST in table.retained else np.zeros((0, 1))
    held = sizes[:, -1] - sizes[:, 0]
    wanted = max(WORTH_BYTES, MOST_OF_IT * gained)
    large = [n for n in np.flatnonzero(held >= wanted).tolist() if table.latest[n].user]
    if not large:
        return None
    carries = [n for n in large if held[n] >= CARRIES * held[large].max()]
    containers = [n for n in carries if table.latest[n].length is not None] or carries
    chosen = max(containers, key=lambda n: len(table.ancestors(n)))
    return LastLook(worker, table.latest[chosen], looked, float(held[chosen]), gained)


def _told(found: Finding, look: LastLook) -> Finding:
    sources, row = look.worker.case.sources, look.row
    feeding = sources.feeding(row.owner, row, WAY) if row.owner is not None else []
    text = (
        f"{found.text} When one of them was looked into last, after {max(look.time_s, 1.0):.0f} s, "
        f"{row.name} held {human_bytes(look.held)} more than at first, of "
        f"{human_bytes(max(look.gained, look.held))} that it had gained."
    )
    return msgspec.structs.replace(
        found,
        text=text,
        fed_at=list(dict.fromkeys(sources.location(one.file, one.line) for one in feeding))[:3],
        remedy=Remedy(
            title=f"Look into {row.name}, in the workers",
            text=(
                "If it keeps what is never asked for again, bound or empty it: a worker with "
                "persistent_workers=True lives as long as its loader. Workers were looked into too "
                "seldom for a verdict: a longer run or a larger --budget has more looks."
            ),
        ),
    )
