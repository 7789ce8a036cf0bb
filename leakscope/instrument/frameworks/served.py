"""Methods of a library that are wrapped as long as any callback of ours lives, or its class."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from leakscope.instrument.auto.classes import PatchedMethod


class ServedMethods:
    """Wraps methods for the first callback and puts them back after the last one."""

    def __init__(self, wrap: Callable[[], list[PatchedMethod]]) -> None:
        self._wrap = wrap
        self._served = 0
        self._patches: list[PatchedMethod] = []

    def serve(self, callback: object) -> None:
        """Have the methods tell until this callback is gone."""
        if not self._patches:
            self._patches = self._wrap()
        self._served += 1
        weakref.finalize(callback, self._gone).atexit = False

    def _gone(self) -> None:
        self._served -= 1
        if not self._served:
            for patch in self._patches:
                patch.remove()
            self._patches = []
