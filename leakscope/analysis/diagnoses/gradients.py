"""Gradients that are kept longer than they are of use.

Weighed in the censuses, explained from the source: cleared only after the next forward pass, filled
with zeros instead of dropped, never cleared, kept through a validation that makes the highest peak,
or left on parameters that are frozen.

May be confused with: gradients gathered over several steps on purpose, whose clearing is
conditional. They are bounded by the size of the model, so never more than a note. Costs no
measurement of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.remedies.edits import Edits
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, INNER
from leakscope.analysis.severity import MIB
from leakscope.analysis.source.gradients import Clearing, clearings, freezing, never_clears
from leakscope.analysis.source.program import Statement
from leakscope.analysis.units import is_training
from leakscope.model import gauge
from leakscope.model.census import Census
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

LEAST_BYTES = 8 * MIB
LEAST_SHARE = 0.05
"""Of all tensors alive then."""
FROZEN_BYTES = 1 * MIB


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return, per device, what is unusual about the gradients; empty where all is as it should."""
    found: list[Finding] = []
    for device in [HOST, *case.track.devices]:
        found += filter(None, (_through_forward(case, device), _in_validation(case, device)))
        found += filter(None, (_frozen(case, device),))
    return found


def _through_forward(case: Case, device: str) -> Finding | None:
    """Return what the forward pass of the next step has beside it for no use."""
    kept = _gradients(case, device, training=True)
    if not kept:
        return None
    program = case.sources.program
    known = clearings(program)
    late = next((c for c in known if c.late_after is not None), None)
    zeros = next((c for c in known if c.keeps_zeros), None)
    unending = never_clears(program)
    if late is not None:
        return _late(case, device, kept, late)
    if zeros is not None:
        return _zeros(case, device, kept, zeros)
    if unending is None:
        return None
    return _finding(
        case,
        "gradients_never_cleared",
        f"Gradients are never cleared: {human_bytes(kept)} stay for good",
        f"The recorded sources call backward() ({_at(case, unending)}) and clear "
        "gradients nowhere, so each step also adds to those of all steps before.",
        Remedy(
            title="Clear the gradients in each step",
            text="Call optimizer.zero_grad() before the forward pass.",
        ),
        device,
        kept,
    )


def _late(case: Case, device: str, kept: int, clearing: Clearing) -> Finding:
    statement = clearing.statement
    assert clearing.late_after is not None
    edits = Edits(case.sources, statement.scope.module.file)
    line = edits.source_of(statement.node)
    edits.insert_before(clearing.late_after, line).remove(statement.node)
    return _finding(
        case,
        "gradients_through_forward",
        f"Gradients of the last step ({human_bytes(kept)}) stay through the next forward pass",
        f"They are cleared only at {_at(case, statement)}, when the forward pass "
        "has made its activations: both lie in memory together, where it is highest.",
        Remedy(
            title="Clear the gradients before the forward pass",
            text=f"Move `{line}` above the forward pass: the step computes the same.",
            diff=edits.diff(),
        ),
        device,
        kept,
    )


def _zeros(case: Case, device: str, kept: int, clearing: Clearing) -> Finding:
    statement = clearing.statement
    edits = Edits(case.sources, statement.scope.module.file)
    call = next(n for n in ast.walk(statement.node) if isinstance(n, ast.Call))
    text = f"{ast.unparse(call.func)}(set_to_none=True)"
    return _finding(
        case,
        "gradients_kept_as_zeros",
        f"Gradients ({human_bytes(kept)}) are filled with zeros instead of dropped",
        f"{_at(case, statement)} keeps them in memory through the forward pass, "
        "where nothing reads them.",
        Remedy(
            title="Let zero_grad drop them",
            text="zero_grad(set_to_none=True), torch's default since 2.0, frees them until the "
            "next backward pass and spares the filling.",
            diff=edits.replace(call, text).diff(),
        ),
        device,
        kept,
    )


def _in_validation(case: Case, device: str) -> Finding | None:
    """Return the gradients beside a phase without training that makes the highest peak.

    Only where an allocator tells its peak: resident memory doesn't move as tensors come and go.
    """
    phase = _phase_of_peak(case, device) if device != HOST else ""
    kept = _gradients(case, device, training=False)
    if not phase or is_training(phase) or not kept:
        return None
    return _finding(
        case,
        "gradients_in_validation",
        f"Gradients of {human_bytes(kept)} lie beside {phase}, which makes the highest peak",
        f"Nothing in {phase} reads the gradients of the last step.",
        Remedy(
            title=f"Drop the gradients before {phase}",
            text="optimizer.zero_grad(set_to_none=True) after the last step of the epoch lowers "
            f"the peak by up to {human_bytes(kept)}.",
        ),
        device,
        kept,
    )


def _phase_of_peak(case: Case, device: str) -> str:
    """Return the phase in which the device's peak was raised last; empty where it isn't known."""
    peaks = case.track.gauge(f"{device}.{gauge.DEVICE_PEAK}")
    known = np.flatnonzero(np.isfinite(peaks))
    raised = known[1:][np.diff(peaks[known]) > 0]
    return case.track.boundaries[int(raised[-1])].phase if len(raised) else ""


def _frozen(case: Case, device: str) -> Finding | None:
    sizes = [c.frozen_gradient_bytes.get(device, 0) for c in case.table.censuses]
    steady = sizes[len(sizes) // 2 :]
    kept = int(np.median(steady)) if steady else 0
    if kept < FROZEN_BYTES:
        return None
    statement = freezing(case.sources.program)
    where = f" ({_at(case, statement)})" if statement is not None else ""
    return _finding(
        case,
        "frozen_gradients",
        f"Frozen parameters keep {human_bytes(kept)} of gradients",
        f"Parameters that no longer require gradients{where} still have those of their last step; "
        "zero_grad() frees them only where the optimizer still knows the parameters.",
        Remedy(
            title="Drop the gradients where parameters are frozen",
            text="Set `parameter.grad = None` beside `parameter.requires_grad = False`.",
        ),
        device,
        kept,
    )


def _at(case: Case, statement: Statement) -> str:
    return case.sources.location(statement.scope.module.file, statement.line)


def _finding(
    case: Case, kind: str, title: str, text: str, remedy: Remedy, device: str, kept: int
) -> Finding:
    return finding(
        kind,
        title,
        text,
        remedy,
        severity=Severity.NOTE,
        growth="constant",
        total_bytes=kept,
        share=kept / max(kept, *(c.payload_bytes.get(device, 0) for c in case.table.censuses)),
        device=device,
    )


def _gradients(case: Case, device: str, *, training: bool) -> int:
    """Return the usual bytes of gradients at steps, or in other phases; 0 where they are few."""
    censuses = list(_inside(case, training=training))
    sizes = [c.components.get("gradients", {}).get(device, 0) for c in censuses]
    whole = [c.payload_bytes.get(device, 0) for c in censuses]
    if len(sizes) < 2:
        return 0
    kept = float(np.median(sizes))
    return int(kept) if kept >= max(LEAST_BYTES, LEAST_SHARE * float(np.median(whole))) else 0


def _inside(case: Case, *, training: bool) -> Iterator[Census]:
    """Yield the censuses at the ends of training steps, or of batches of other phases."""
    for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True):
        boundary = case.track.boundaries[position]
        if case.track.kind[position] in INNER and is_training(boundary.phase) == training:
            yield census
