"""Notices that the program imports torch, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import without_our_frame
from leakscope.model.interrupts import ours

Arrival = Callable[[ModuleType], None]


class ImportWatch:
    """A finder that finds nothing itself: it has the found module tell when it has been run."""

    def __init__(self, arrivals: dict[str, Arrival]) -> None:
        self._arrivals = dict(arrivals)

    def start(self) -> None:
        """Watch for the modules that have not arrived."""
        if self._arrivals:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Watch no more."""
        self._arrivals.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def arrived(self, name: str) -> Arrival | None:
        """Note that a module is there; the last one ends the watch."""
        arrival = self._arrivals.pop(name, None)
        if not self._arrivals:
            self.stop()
        return arrival

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders give, its loader wrapped; None for other names."""
        if name not in self._arrivals:
            return None
        finders = list(sys.meta_path)
        # Those before it have been asked; two watches would ask each other for ever.
        for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _TellingLoader(spec.loader, self)
                return spec
        return None


class _TellingLoader(Loader):
    """Loads as the real loader does and leaves no trace in the module."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the real loader creates."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then tell."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            without_our_frame(error)
            raise
        arrival = self._watch.arrived(module.__name__)
        if arrival is None:
            return
        try:
            arrival(module)
        except ours(Exception):
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
