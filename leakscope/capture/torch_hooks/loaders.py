"""Passes over a ``DataLoader``, and over loaders that hand out what other iterators fetch
(Accelerate, timm).

Those of Accelerate fetch a batch before the one that they hand out; others, as those of timm and
ultralytics, keep one endless iterator to keep its workers, and hand out so many batches of it for
each epoch. What the program asks for is what counts: the passes inside are none of its own.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from types import FrameType, GeneratorType, ModuleType
from typing import Any, cast

from leakscope.capture.dispatch import EventDispatcher, leave_hook
from leakscope.capture.phases import PhaseTracker
from leakscope.capture.sites import WeakNumbering, call_route
from leakscope.capture.torch_hooks.patching import (
    HookSource,
    PatchedMethod,
    opaque,
    without_our_frame,
)
from leakscope.model.errors import OUR_FILES, ours


class LoaderHooks(HookSource):
    """Wraps the two methods through which every loader is iterated, in the main process."""

    module = "torch.utils.data.dataloader"

    def __init__(self, tracker: PhaseTracker, gate: EventDispatcher) -> None:
        self._tracker = tracker
        self._gate = gate
        self._loaders = WeakNumbering()
        self._iterators = WeakNumbering(self._dropped)
        tracker.sites.is_alive = self._loaders.is_alive
        self.fetching = 0
        """The thread in which a loader made of others fetches its batches; 0 for none."""
        self.on_kept: Callable[[Any], bool] = lambda loader: False
        """Receives loaders that create their iterator to keep it over all epochs; returns whether
        passes over them are seen."""

    def install(self, module: ModuleType) -> None:
        """Wrap the methods."""
        self._patches = (
            PatchedMethod(module.DataLoader, "__iter__", self._wrap_iter),
            PatchedMethod(module._BaseDataLoaderIter, "__next__", self._wrap_next),
        )

    def uninstall(self) -> None:
        """Put the methods back."""
        super().uninstall()
        self._iterators.clear()
        self._loaders.clear()

    def _wrap_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return _beginning(original, functools.partial(self._gate.dispatch_found, self.begin))

    def _wrap_next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        gate, batch_requested, ended = self._gate, self.batch_requested, self.ended

        @opaque
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            try:
                gate.dispatch_found(batch_requested, iterator)
            except BaseException as interrupt:
                leave_hook(interrupt)
                raise
            try:
                return original(iterator)
            except StopIteration:
                try:
                    gate.dispatch_found(ended, iterator)
                except BaseException as interrupt:
                    leave_hook(interrupt)
                    raise
                raise
            except BaseException as error:
                without_our_frame(error)
                del iterator  # as above
                raise

        return __next__

    def begin(self, loader: Any, iterator: Any, *, is_counted: bool = True) -> None:
        """A loader's iterator was made; ``is_counted`` if its batches are those of torch's."""
        if self.fetching == get_ident():
            return
        if _is_kept(loader, iterator) and self.on_kept(loader):
            return
        site, route = call_route()
        self._tracker.loader_begin(
            self._iterators.of(iterator),
            site=site,
            route=route,
            loader=self._loaders.of(loader),
            expected=batches_of(loader) if is_counted else None,
        )

    def batch_requested(self, iterator: Any) -> None:
        """A batch is fetched."""
        token = self._iterators.find(iterator)
        if token is not None:
            self._tracker.loader_next(token)

    def ended(self, iterator: Any) -> None:
        """There are no more batches."""
        token = self._iterators.find(iterator)
        if token is not None:
            self._tracker.loader_end(token)

    def _dropped(self, token: int) -> None:
        self._gate.dispatch_deferred(self._tracker.loader_dropped, token)


def _beginning(
    original: Callable[[Any], Any],
    begin: Callable[[Any, Any], object],
    hand_out: Callable[[Any], Any] = lambda iterator: iterator,
) -> Callable[[Any], Any]:
    """Return an ``__iter__`` that reports the loader and its iterator, and hands that out."""

    @opaque
    @functools.wraps(original)
    def __iter__(loader: Any) -> Any:  # noqa: N807
        try:
            iterator = original(loader)
        except BaseException as error:
            without_our_frame(error)
            del loader  # whoever clears the traceback's frames doesn't find ours
            raise
        try:
            begin(loader, iterator)
        except BaseException as interrupt:
            leave_hook(interrupt)
            raise
        return hand_out(iterator)

    return __iter__


def _is_kept(loader: Any, iterator: Any) -> bool:
    """Return whether a loader of a class of its own made torch's iterator to hand out parts of it.

    That is elsewhere than in the method by which the program iterates.
    """
    method = type(loader).__iter__
    is_of_torch = str(getattr(method, "__module__", "")).startswith("torch.")
    if isinstance(iterator, GeneratorType) or is_of_torch:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OUR_FILES):
        frame = frame.f_back
    return frame is not None and frame.f_code is not getattr(method, "__code__", None)


def passes_of(iterable: object) -> int | None:
    """Return how many items an iterable has, if asking for it runs none of the user's code."""
    kind = type(iterable)
    if kind in (list, tuple, range, dict):
        return len(cast("list[object]", iterable))
    return batches_of(iterable) if kind.__module__.startswith("torch.utils.data") else None


def batches_of(loader: Any) -> int | None:
    """Return how many batches a loader has, if asking for it runs nothing but torch's samplers."""
    try:
        sampler = loader.batch_sampler
        if sampler is None:  # its truth would be its length
            sampler = loader.sampler
        parts = (sampler, getattr(sampler, "sampler", sampler))
        if loader._dataset_kind != 0 or not all(
            type(part).__module__.startswith("torch.") for part in parts
        ):
            return None
        core: Any = sys.modules["torch._C"]
        with core.DisableTorchFunction(), core._DisableTorchDispatch():
            return len(sampler)  # datasets of tensors ask one for its size
    except ours(Exception):
        return None


COUNTED, OTHERS = ("DataLoaderShard", "SkipDataLoader"), ("DataLoaderDispatcher",)
"""Those whose batches are those of the loader inside, and those that make others of them."""


class OuterPasses(HookSource):
    """Wraps the methods by which loaders are iterated that hand out what others fetch: those of
    Accelerate when it is imported, others once they show themselves.
    """

    module = "accelerate.data_loader"

    def __init__(self, loaders: LoaderHooks, gate: EventDispatcher) -> None:
        self._loaders = loaders
        self._gate = gate
        self._known: weakref.WeakSet[type] = weakref.WeakSet()
        loaders.on_kept = self.keeps_its_iterator

    def install(self, module: ModuleType) -> None:
        """Wrap the methods."""
        for name in COUNTED + OTHERS:
            kind = vars(module).get(name)
            if isinstance(kind, type) and "__iter__" in vars(kind):
                self.wrap(kind, is_counted=name in COUNTED)

    def wrap(self, kind: type, *, is_counted: bool) -> None:
        """Wrap the method of a class; ``is_counted`` if its batches are those of the one inside."""
        self._known.add(kind)
        wrap = functools.partial(self._wrap_iter, is_counted=is_counted)
        self._patches += (PatchedMethod(kind, "__iter__", wrap),)

    def keeps_its_iterator(self, loader: Any) -> bool:
        """A loader made its iterator elsewhere than in ``__iter__``; return whether passes are
        seen.
        """
        kind = next(kind for kind in type(loader).__mro__ if "__iter__" in vars(kind))
        if kind not in self._known and inspect.isgeneratorfunction(vars(kind)["__iter__"]):
            self.wrap(kind, is_counted=True)
        return kind in self._known

    def uninstall(self) -> None:
        """Put the methods back."""
        super().uninstall()
        self._known.clear()

    def batch_requested(self, fetched: Iterator[Any]) -> int:
        """The program asks for a batch; return what :meth:`fetched` takes: loaders inside don't
        count.
        """
        self._gate.dispatch_found(self._loaders.batch_requested, fetched)
        outside, self._loaders.fetching = self._loaders.fetching, get_ident()
        return outside

    def fetched(self, outside: int) -> None:
        """The batch is there, or there was none."""
        self._loaders.fetching = outside

    def ended(self, fetched: Iterator[Any]) -> None:
        """There are no more batches."""
        self._gate.dispatch_found(self._loaders.ended, fetched)

    def _wrap_iter(
        self, original: Callable[[Any], Iterator[Any]], *, is_counted: bool
    ) -> Callable[[Any], Iterator[Any]]:
        begin = functools.partial(self._loaders.begin, is_counted=is_counted)
        hand_out = functools.partial(_handed_out, hooks=weakref.ref(self))
        return _beginning(original, functools.partial(self._gate.dispatch_found, begin), hand_out)


def _handed_out(fetched: Iterator[Any], hooks: weakref.ref[OuterPasses]) -> Iterator[Any]:
    """Yield what Accelerate's generator yields; the frame keeps nothing that a census would see."""
    batch: list[Any] = []
    while True:
        outside = _call_outer(hooks, "batch_requested", fetched)
        try:
            batch.append(next(fetched))
        except StopIteration:
            _call_outer(hooks, "ended", fetched)
            return
        except BaseException as error:
            without_our_frame(error)
            raise
        finally:
            _call_outer(hooks, "fetched", outside)
        yield batch.pop()


def _call_outer(hooks: weakref.ref[OuterPasses], event: str, argument: Any) -> Any:
    alive = hooks()
    return None if alive is None else getattr(alive, event)(argument)
