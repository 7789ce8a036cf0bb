"""What memory held at several censuses: one tree of names, and its bytes at each of them."""

from __future__ import annotations

from enum import Enum

import msgspec

from leakscope.model.boundary import Boundary
from leakscope.model.census import CensusScope
from leakscope.model.numbers import Whole


class NodeKind(str, Enum):
    """What a node of the tree stands for."""

    WHOLE = "whole"
    """All that a census saw: the first node, and the only one without a parent."""
    GROUP = "group"
    """What is not the user's own: libraries, native code, garbage. Only full censuses see it."""
    OWNER = "owner"
    """The function, class or module in which names begin."""
    ROW = "row"
    """Objects that share a path."""
    CONTENT = "content"
    """What such an object holds, of one type."""
    SMALLER = "smaller"
    """Nodes that were too small and too many to be kept, added up."""


class RetainedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name under which memory is held."""

    kind: NodeKind
    parent: int = -1
    """Place of its parent among the nodes, which is before its own; -1 for the whole."""
    label: str = ""
    """The step from its parent: ``Trainer.validate()``, ``records``, ``[*]``, ``numpy.ndarray``."""
    name: str = ""
    """As a person would say it; of a row only."""
    path: str = ""
    """The full pattern from the root; of a row only."""
    type: str = ""
    """Qualified type of the objects; of a row only."""
    keeps_graph: bool = False
    """Whether it is a tensor that keeps an autograd graph; of a row only."""
    count: Whole = 0
    """How many nodes were added up; of ``smaller`` only."""


class RetainedCensus(msgspec.Struct, frozen=True, kw_only=True):
    """One census of those that were kept."""

    boundary: Boundary
    scope: CensusScope
    cutoff_bytes: Whole
    """What retained less has no row of its own."""
    truncated: bool = False
    """Whether more autograd nodes were alive than were counted: what keeps graphs holds more."""
    bytes: dict[str, list[Whole | None]]
    """By device (``host`` first) the bytes of each node; None where this census can't tell: in a
    focused one what isn't the user's, and what is in items of which only a part was named. What
    several names keep alive counts for the first of them, so children never hold more than their
    parent, and what they leave of it has no name of its own."""


class RetainedProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose memory it is, where a run has several processes."""

    rank: Whole | None = None
    """None where the run has no ranks."""
    loader: Whole = 0
    """Of a worker: the number of its DataLoader, from 1."""
    worker: Whole | None = None
    """None in a process that trains."""
    generation: Whole = 0
    """How often its loader had started workers before."""
    pid: Whole = 0


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory of a process held over a run. Only two censuses of one scope see the same."""

    process: RetainedProcess = RetainedProcess()
    nodes: list[RetainedNode]
    censuses: list[RetainedCensus]
    """In the order of time; of many a choice spread over the run, first and last among them."""
    taken: Whole
    """How many there were to choose from."""
    first: int
    """Place of the census from which growth is told unless another is asked for."""
    last: int
    """Place of the census to which it is told; of ``first``'s kind, where there is one."""
    shown: int
    """Place of the census to look at first: the last one before functions returned because the
    program was ending."""
