"""The state of a device that is worth explaining: at the failure if there was one, else the end."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.cuda.classes import Live, classify
from leakscope.analysis.cuda.faults import fault_of
from leakscope.analysis.cuda.figures import figures_of
from leakscope.analysis.cuda.replay import Replay, replay
from leakscope.analysis.cuda.stack_kinds import kind_of
from leakscope.model.allocator import Segment, Snapshot
from leakscope.model.device import Figures
from leakscope.model.explanation import BlockClass, Fault


@dataclass(frozen=True)
class Study:
    """One device: its history, the state that matters, and what is live in that state."""

    played: Replay
    fault: Fault | None
    state: list[Segment]
    figures: Figures
    found: list[Live]
    is_recorded: bool
    """Whether any stack was recorded at all."""


def study(snapshot: Snapshot, device: int) -> Study:
    """Return the state of a device that is worth explaining, with its blocks classified."""
    played = replay(snapshot, device)
    is_recorded = _is_recorded(played)
    fault, state = fault_of(
        played, is_recorded=is_recorded, is_training=_is_training(snapshot)
    ) or (None, played.final)
    found = classify(state, is_recorded=is_recorded)
    return Study(played, fault, state, figures_of(state), found, is_recorded)


def _is_recorded(played: Replay) -> bool:
    in_blocks = any(block.stack for segment in played.final for block in segment.blocks)
    return in_blocks or any(entry.stack for entry in played.entries)


def _is_training(snapshot: Snapshot) -> bool:
    telling = (BlockClass.BACKWARD, BlockClass.OPTIMIZER)
    stacks = {id(e.stack): e.stack for trace in snapshot.traces.values() for e in trace}
    return any(mark.name.startswith("Optimizer.") for mark in snapshot.annotations) or any(
        kind_of(stack) in telling for stack in stacks.values()
    )
