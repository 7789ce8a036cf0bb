"""What an icicle is drawn of: a process's tree, what its moments are called, the culprits in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from leakscope.analysis.retained.weights import grown
from leakscope.model.retained import NodeKind, Retained


@dataclass(frozen=True)
class Mark:
    """A culprit that a box is of."""

    anchor: str
    """Of its card."""
    sign: str
    """A few letters for the box: its rank, or what became of it."""
    words: str
    tone: str = ""
    """What became of it, where two runs are compared."""


@dataclass(frozen=True)
class Subject:
    """A tree to draw."""

    retained: Retained
    process: str
    """Whose memory it is; empty where there is a single process."""
    moments: Sequence[str]
    signs: Mapping[str, Mark]
    """By the path of a culprit."""
    notes: Sequence[str]

    @property
    def ends(self) -> tuple[int, int]:
        """The censuses between which growth is told."""
        return self.retained.first, self.retained.last

    @cached_property
    def devices(self) -> list[str]:
        """All on which there is memory."""
        return [*dict.fromkeys(d for census in self.retained.censuses for d in census.bytes)]

    @cached_property
    def device(self) -> str:
        """The device that is shown: on which most has changed."""
        return max(self.devices, key=lambda d: grown(self.retained, d, *self.ends).widths[0])

    @cached_property
    def marks(self) -> dict[int, Mark]:
        """By node the culprit that it is."""
        return {
            place: self.signs[node.path]
            for place, node in enumerate(self.retained.nodes)
            if node.kind is NodeKind.ROW and node.path in self.signs
        }

    def changed(self, anchor: str) -> int:
        """Return how much a culprit changed in this tree, on the device where it did most."""
        places = [place for place, mark in self.marks.items() if mark.anchor == anchor]
        trees = [grown(self.retained, device, *self.ends).widths for device in self.devices]
        return max((widths[place] for widths in trees for place in places), default=0)
