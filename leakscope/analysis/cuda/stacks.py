"""Stacks kept once each, however often a file repeats them."""

from __future__ import annotations

from typing import Any

from leakscope.analysis.cuda.oddities import Oddities
from leakscope.model.allocator import Frame, Stack

DEEPEST = 1000
LONGEST_TEXT = 1000
_SHARED = "$stack"


class StackTable:
    """The stacks of one file.

    A pickle shares its frames, and often their lists, among all who have the same stack, so that
    a stack is mostly known by the identity of what it consists of; JSON repeats everything, so
    that it is then known by what it says. The file's values must outlive the table.
    """

    def __init__(self, oddities: Oddities) -> None:
        self._oddities = oddities
        self._of_list: dict[int, Stack | None] = {}
        self._of_identities: dict[tuple[int, ...], Stack | None] = {}
        self._of_frames: dict[tuple[tuple[Frame, ...], tuple[str, ...]], Stack] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        self._tabled: list[Stack | None] = []

    def add_table(self, frame_table: Any, stacks: Any) -> None:
        """Learn stacks that a file writes down apart, as indices into a list of frames."""
        frames = frame_table if isinstance(frame_table, list) else []
        for indices in stacks if isinstance(stacks, list) else []:
            told = indices if isinstance(indices, list) else []
            known = [frames[i] for i in told if isinstance(i, int) and 0 <= i < len(frames)]
            self._tabled.append(self._interned(known, ()))

    def stack(self, told: Any, forward: Any = None) -> Stack | None:
        """Return the stack that a list of frames means; None where there is none."""
        if not told and not forward:
            return None
        if isinstance(told, dict):
            return self._from_table(told.get(_SHARED))
        if not isinstance(told, list):
            self._oddities.note("frames that are no list are left out")
            return None
        lines = tuple(text(line) for line in forward) if isinstance(forward, list) else ()
        if lines:
            return self._interned(told, lines)
        identity = id(told)
        if identity not in self._of_list:
            self._of_list[identity] = self._of_shared_frames(told)
        return self._of_list[identity]

    def _of_shared_frames(self, told: list[Any]) -> Stack | None:
        identities = tuple(map(id, told))
        if identities not in self._of_identities:
            self._of_identities[identities] = self._interned(told, ())
        return self._of_identities[identities]

    def _from_table(self, index: Any) -> Stack | None:
        if isinstance(index, int) and 0 <= index < len(self._tabled):
            return self._tabled[index]
        self._oddities.note("a stack is named that the file doesn't hold")
        return None

    def _interned(self, told: list[Any], forward: tuple[str, ...]) -> Stack | None:
        frames = tuple(self._frame(item) for item in told[:DEEPEST] if isinstance(item, dict))
        if len(frames) < len(told):
            self._oddities.note("frames that are no frames, or deeper than a thousand, left out")
        if not frames and not forward:
            return None
        key = (frames, forward)
        stack = self._of_frames.get(key)
        if stack is None:
            stack = self._of_frames[key] = Stack(frames, forward)
        return stack

    def _frame(self, told: dict[str, Any]) -> Frame:
        line = told.get("line")
        key = (
            text(told.get("filename")),
            line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
            text(told.get("name")),
        )
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = Frame(*key)
        return frame


def text(told: Any) -> str:
    """Return a text of bearable length, empty where there is none."""
    return told[:LONGEST_TEXT] if isinstance(told, str) else ""
