"""Passes over loaders that hand out what other iterators fetch.

Those of Accelerate fetch a batch before the one that they hand out; others, as those of timm and
ultralytics, keep one endless iterator to keep its workers, and hand out so many batches of it for
each epoch. What the program asks for is what counts: the passes inside are none of its own.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from leakscope.instrument.auto.classes import PatchedMethod, opaque, without_our_frame
from leakscope.instrument.auto.loaders import LoaderHooks
from leakscope.instrument.gate import Gate
from leakscope.instrument.tracebacks import leave_hook

COUNTED, OTHERS = ("DataLoaderShard", "SkipDataLoader"), ("DataLoaderDispatcher",)
"""Those whose batches are those of the loader inside, and those that make others of them."""


class OuterPasses:
    """Wraps the methods by which loaders are iterated that hand out what others fetch."""

    def __init__(self, loaders: LoaderHooks, gate: Gate) -> None:
        self._loaders = loaders
        self._gate = gate
        self._patches: list[PatchedMethod] = []
        self._known: weakref.WeakSet[type] = weakref.WeakSet()
        loaders.on_kept = self.keeps_its_iterator

    def wrap(self, kind: type, *, is_counted: bool) -> None:
        """Wrap the method of a class; ``is_counted`` if its batches are those of the one inside."""
        self._known.add(kind)
        wrap = functools.partial(self._wrap_iter, is_counted=is_counted)
        self._patches.append(PatchedMethod(kind, "__iter__", wrap))

    def keeps_its_iterator(self, loader: Any) -> bool:
        """A loader has made its iterator elsewhere than in the method that iterates over it.

        Return whether passes over it are heard of.
        """
        kind = next(kind for kind in type(loader).__mro__ if "__iter__" in vars(kind))
        if kind not in self._known and inspect.isgeneratorfunction(vars(kind)["__iter__"]):
            self.wrap(kind, is_counted=True)
        return kind in self._known

    def uninstall(self) -> None:
        """Put the methods back."""
        for patch in self._patches:
            patch.remove()
        self._patches.clear()
        self._known.clear()

    def asked(self, fetched: Iterator[Any]) -> int:
        """The program asks for a batch: what loaders do until :meth:`fetched` is none of its own.

        Return what :meth:`fetched` takes.
        """
        self._gate.hear_found(self._loaders.asked, fetched)
        return self._loaders.begin_fetching()

    def fetched(self, outside: int) -> None:
        """The batch is there, or there was none."""
        self._loaders.end_fetching(outside)

    def ended(self, fetched: Iterator[Any]) -> None:
        """There are no more batches."""
        self._gate.hear_found(self._loaders.ended, fetched)

    def _wrap_iter(
        self, original: Callable[[Any], Iterator[Any]], *, is_counted: bool
    ) -> Callable[[Any], Iterator[Any]]:
        gate, hooks = self._gate, weakref.ref(self)
        begin = functools.partial(self._loaders.begin, is_counted=is_counted)

        @opaque
        @functools.wraps(original)
        def __iter__(loader: Any) -> Iterator[Any]:  # noqa: N807
            fetched = original(loader)
            try:
                gate.hear_found(begin, loader, fetched)
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise
            return _handed_out(fetched, hooks)

        return __iter__


class AheadHooks:
    """Finds the loaders of Accelerate."""

    module = "accelerate.data_loader"

    def __init__(self, outer: OuterPasses) -> None:
        self._outer = outer

    def install(self, module: ModuleType) -> None:
        """Wrap the methods."""
        for name in COUNTED + OTHERS:
            kind = vars(module).get(name)
            if isinstance(kind, type) and "__iter__" in vars(kind):
                self._outer.wrap(kind, is_counted=name in COUNTED)

    def uninstall(self) -> None:
        """Put the methods back."""
        self._outer.uninstall()


def _handed_out(fetched: Iterator[Any], hooks: weakref.ref[OuterPasses]) -> Iterator[Any]:
    """Yield what Accelerate's own generator yields.

    While the program works on a batch, this frame keeps neither the batch nor anything of ours:
    a census goes through it.
    """
    batch: list[Any] = []
    while True:
        outside = _call(hooks, "asked", fetched)
        try:
            batch.append(next(fetched))
        except StopIteration:
            _call(hooks, "ended", fetched)
            return
        except BaseException as error:
            without_our_frame(error)
            raise
        finally:
            _call(hooks, "fetched", outside)
        yield batch.pop()


def _call(hooks: weakref.ref[OuterPasses], event: str, argument: Any) -> Any:
    alive = hooks()
    return None if alive is None else getattr(alive, event)(argument)
