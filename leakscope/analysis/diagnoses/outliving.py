"""Tensors that outlive their iteration: what the loop's variables hold while the next step runs.

A step ends where the next batch is asked for. What local variables hold then lies beside the next
forward pass until its name gets another value. Censuses at steps weigh it, the source tells when
it goes and whether a ``del`` may be written: which of them help, by how much, and which don't.

May be confused with: what the loop carries on purpose (a hidden state, a running total), which the
source tells apart. It is no leak and never more than a note. Costs no measurement of its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.remedies.edits import Edits
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, INNER
from leakscope.analysis.severity import MIB
from leakscope.analysis.source.anchors import find_scope
from leakscope.analysis.source.loops import Fate, Lifetime, lifetime, training_loop
from leakscope.analysis.units import is_training
from leakscope.model.census import Census, CensusRow, RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

LEAST_BYTES = 8 * MIB
STAYING_SHARE = 0.05
REPLACED_SHARE = 0.2
"""Of all tensors alive at these moments: less changes no peak that anybody would notice. What goes
in the course of the next step may be gone before the peak anyway."""
NAMED_BYTES = 1 * MIB
FEWEST_CENSUSES = 2
_ROOTS = (RootKind.LOCAL, RootKind.GLOBAL)
_ROLES = ("batch", "graph", "accumulation", "other")
_OBJECTS = ("module", "optimizer", "function", "generator", "lru_cache", "object", "queue")


@dataclass(frozen=True)
class Outliving:
    """A variable and what it alone holds when a step is over."""

    life: Lifetime
    bytes: int


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return, per device, what letting go of the loop's variables would free; empty if little."""
    grown = {case.table.paths[g.path] for g in growth.growers}
    censuses = _at_steps(case)
    if len(censuses) < FEWEST_CENSUSES:
        return []
    devices = {device for census in censuses for device in census.payload_bytes}
    found = [_of_device(case, censuses, device, grown) for device in sorted(devices)]
    return [f for f in found if f is not None]


def _at_steps(case: Case) -> list[Census]:
    """Return the censuses at the ends of training steps, without the very first."""
    track, chosen = case.track, []
    for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True):
        boundary = track.boundaries[position]
        if track.kind[position] in INNER and is_training(boundary.phase) and boundary.step > 1:
            chosen.append(census)
    return chosen


def _of_device(case: Case, censuses: list[Census], device: str, grown: set[str]) -> Finding | None:
    outliving = _outliving(case, censuses, device, grown)
    whole = float(np.median([census.payload_bytes.get(device, 0) for census in censuses]))
    staying = [o for o in outliving if o.life.fate is Fate.STAYS]
    useful = [o for o in outliving if o.life.fate is not Fate.NEXT_BATCH]
    held = _together(staying)
    if held >= max(LEAST_BYTES, STAYING_SHARE * whole):
        title = f"{_names(staying)} {_verb(staying, 'keep')} {human_bytes(held)} through each step"
    elif (held := _together(useful)) >= max(LEAST_BYTES, REPLACED_SHARE * whole):
        title = f"{_names(useful)} {_verb(useful, 'keep')} {human_bytes(held)} into the next step"
    else:
        return None
    return finding(
        "outlives_iteration",
        title,
        _text(outliving, device, whole),
        _remedy(case, useful),
        severity=Severity.NOTE,
        share=held / whole if whole else 0.0,
        total_bytes=held,
        device=device,
        falsifier=(
            "With the del in place the peak is as high: it lies where they are gone already.",
            None,
        ),
        subject=",".join(sorted(o.life.name for o in useful)),
        growth="constant",
    )


def _together(some: list[Outliving]) -> int:
    return sum(o.bytes for o in some)


def _outliving(case: Case, censuses: list[Census], device: str, grown: set[str]) -> list[Outliving]:
    """Return the loop's variables by what they hold in the middle of the run, most first."""
    held: dict[str, list[int]] = defaultdict(list)
    latest: dict[str, CensusRow] = {}
    for census in censuses:
        for row in census.rows:
            if _is_variable(row) and row.path not in grown:
                latest[row.path] = row
                held[row.path].append(_alone(row, device))
    found = []
    for path, row in latest.items():
        usual = float(np.median([*held[path], *[0] * (len(censuses) - len(held[path]))]))
        life = _life(case, row) if usual >= NAMED_BYTES else None
        if life is not None:
            found.append(Outliving(life, int(usual)))
    return sorted(found, key=lambda o: (-o.bytes, o.life.name))


def _is_variable(row: CensusRow) -> bool:
    variable = row.owner.variable if row.owner else ""
    plain = bool(variable) and row.path.endswith(f"·{variable}")
    fits = row.role in _ROLES and row.kind not in _OBJECTS
    return plain and fits and row.user and row.root in _ROOTS


def _alone(row: CensusRow, device: str) -> int:
    return row.host_bytes if device == HOST else row.device_bytes.get(device, 0)


def _life(case: Case, row: CensusRow) -> Lifetime | None:
    program = case.sources.program
    scope = find_scope(program, row.owner)
    loop = training_loop(program, scope) if scope is not None else None
    if scope is None or loop is None or row.owner is None:
        return None
    return lifetime(program, scope, loop, row.owner.variable)


def _text(outliving: list[Outliving], device: str, whole: float) -> str:
    where = "in host memory" if device == HOST else f"on {device}"
    fates = {fate: [o for o in outliving if o.life.fate is fate] for fate in Fate}
    staying, replaced, next_batch = fates[Fate.STAYS], fates[Fate.REPLACED], fates[Fate.NEXT_BATCH]
    sentences = [f"When a step is over, {human_bytes(whole)} of tensors are alive {where}."]
    if staying:
        sentences.append(
            f"{_listed(staying)} {_verb(staying, 'live')} on through the whole next step: `del` "
            f"after the last use lowers its peak by {human_bytes(_together(staying))}."
        )
    if replaced:
        sentences.append(
            f"{_listed(replaced)} {_verb(replaced, 'go')} when the next step gets to "
            f"{_lines(replaced)}: `del` helps only if memory is highest before that."
        )
    if next_batch:
        sentences.append(
            f"No use in a `del` of {_listed(next_batch)}: the next batch replaces it at once."
        )
    return " ".join(sentences)


def _lines(some: list[Outliving]) -> str:
    lines = sorted({o.life.replaced_at or 0 for o in some})
    told = [str(line) for line in lines]
    return f"line {told[0]}" if len(told) == 1 else f"lines {', '.join(told[:-1])} and {told[-1]}"


def _listed(some: list[Outliving]) -> str:
    return ", ".join(
        f"`{o.life.name}` ({human_bytes(o.bytes)}, line {o.life.made_at})" for o in some
    )


def _names(some: list[Outliving]) -> str:
    names = [o.life.name for o in some]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(some: list[Outliving], verb: str) -> str:
    if len(some) > 1:
        return verb
    return f"{verb}es" if verb.endswith("o") else f"{verb}s"


def _remedy(case: Case, useful: list[Outliving]) -> Remedy:
    return Remedy(
        title=f"Let go of {_names(useful)} after the last use",
        text=(
            "A tensor is freed when its last name goes; `empty_cache()` frees nothing that a name "
            "still holds, and what `del` frees is reused without it."
        ),
        diff=_diff(case, useful),
    )


def _diff(case: Case, useful: list[Outliving]) -> str | None:
    """Return the `del` statements of all that stand in the first one's file."""
    edits = Edits(case.sources, useful[0].life.file)
    by_statement: dict[int, list[Outliving]] = defaultdict(list)
    for o in useful:
        if o.life.last_used is not None and o.life.file == useful[0].life.file:
            by_statement[id(o.life.last_used)].append(o)
    for together in by_statement.values():
        last = together[0].life.last_used
        assert last is not None
        edits.insert_after(last, f"del {', '.join(o.life.name for o in together)}")
    return edits.diff() if by_statement else None
