"""Device memory of a recorded run: the allocator's blocks joined with who holds them."""

from __future__ import annotations

import msgspec

from leakscope.analysis.case import Case
from leakscope.analysis.cuda.figures import pools_of
from leakscope.analysis.cuda.picture import memory_map
from leakscope.analysis.cuda.slack import kind_of_slack, settings_advice, slack_sentence
from leakscope.analysis.device_states import DeviceState
from leakscope.analysis.devices.owners import (
    find_owners,
    owner_rows,
    role_rows,
    unexplained_bytes,
    unexplained_rows,
)
from leakscope.analysis.devices.series import peak_figures
from leakscope.model import gauge
from leakscope.model.boundary import Boundary
from leakscope.model.census import CensusScope
from leakscope.model.device import DeviceMemory, DeviceOwner, UnexplainedBlocks

STEADY_STEPS = 2
"""From the second step on an optimizer's state is there, and later steps need no more."""
_WHEN = {
    "run_begin": "at the beginning",
    "run_end": "at the end",
    "phase_begin": "at the begin of {phase}",
    "phase_end": "at the end of {phase}",
    "step": "after step {step} of {phase}",
    "batch": "after batch {batch} of {phase}",
    "epoch_end": "at the end of epoch {epoch}",
    "mark": "at the mark {label}",
    "request": "on request",
}


def find_devices(case: Case) -> list[DeviceMemory]:
    """Return each device at the recorded list of blocks with most live bytes."""
    return [_device(case, state) for state in case.device_states.values()]


def _device(case: Case, state: DeviceState) -> DeviceMemory:
    record, figures = state.record, state.figures
    found = find_owners(state)
    position = _position(case, record.boundary)
    boundary = case.track.boundaries[position] if position is not None else None
    peak = peak_figures(case, record.device, figures)
    left = unexplained_bytes(found.blocks)
    return DeviceMemory(
        device=record.device,
        boundary=record.boundary,
        moment=_moment(boundary),
        figures=figures,
        peak_bytes=None if peak is None else peak.active,
        outside_bytes=_reading(case, f"{record.device}.{gauge.DEVICE_OUTSIDE}", position),
        pinned_bytes=_reading(case, gauge.PINNED_HOST, position),
        roles=role_rows(found.blocks),
        owners=[_shown(case, row) for row in owner_rows(found.blocks)],
        unexplained=[_shown_blocks(case, row) for row in unexplained_rows(found.blocks)],
        explained_share=1.0 - left / figures.active if figures.active else 1.0,
        astray_bytes=found.astray,
        slack=kind_of_slack(figures),
        slack_sentence=slack_sentence(figures, peak),
        settings=settings_advice(
            state.segments,
            figures,
            peak,
            record.settings,
            is_steady=boundary is not None and boundary.step >= STEADY_STEPS,
        ),
        pools=pools_of(state.segments),
        memory_map=memory_map(state.segments, {id(o.block): _kind(o.role) for o in found.blocks}),
        sees_libraries=_sees_libraries(case, position),
        left_out_blocks=record.left_out,
    )


def _shown(case: Case, row: DeviceOwner) -> DeviceOwner:
    places = [case.sources.files.relative(place) for place in row.allocated_at]
    return msgspec.structs.replace(row, allocated_at=places)


def _shown_blocks(case: Case, row: UnexplainedBlocks) -> UnexplainedBlocks:
    place = case.sources.files.relative(row.allocated_at) if row.allocated_at else ""
    return msgspec.structs.replace(row, allocated_at=place)


def _kind(role: str) -> str:
    """Return what a role is called in the picture, where ``cache`` means free segments."""
    return "caches" if role == "cache" else role


def _position(case: Case, index: int) -> int | None:
    found = (case.track.index == index).nonzero()[0]
    return int(found[0]) if len(found) else None


def _sees_libraries(case: Case, position: int | None) -> bool:
    census = None if position is None else case.track.measurements[position].census
    return census is None or census.scope is CensusScope.FULL


def _reading(case: Case, name: str, position: int | None) -> int | None:
    value = None if position is None else case.nearest(name, position)
    return None if value is None else int(value)


def _moment(boundary: Boundary | None) -> str:
    if boundary is None:
        return "at a boundary that was lost"
    return _WHEN[boundary.kind.value].format(
        phase=boundary.phase or "the run",
        step=boundary.step,
        batch=boundary.batch,
        epoch=boundary.epoch + 1,
        label=boundary.label,
    )
