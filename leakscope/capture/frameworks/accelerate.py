"""Accelerate: its loops are plain ones, found as they are; a tracker begins and ends the run.

Accelerate has no events but those of its trackers: they are started, given values, and finished.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from leakscope.capture.frameworks.training import (
    FrameworkCallback,
    Training,
    Upkeep,
    contained,
)
from leakscope.capture.options import RecordingOptions
from leakscope.capture.trackers import memory_figures

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LeakScopeTracker(GeneralTracker, FrameworkCallback):  # type: ignore[misc]
    """Records from ``init_trackers()`` to ``end_training()``: ``log_with=[LeakScopeTracker()]``.

    Where something records already it joins. With :meth:`log_to_trackers_of` the other trackers
    draw memory, in MiB, alongside what is logged, and the prepared loaders are looked at for what
    goes badly with workers.

    Args:
        options: as for :func:`leakscope.profile`.

    Raises:
        LeakscopeError: for options that make no sense.

    """

    name = "leakscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, **options: Unpack[RecordingOptions]) -> None:
        super().__init__()
        self.training = Training(options)
        self._upkeep = Upkeep(self.training)
        self._accelerator: weakref.ref[Accelerator] | None = None
        self._loaders = 0

    @property
    def tracker(self) -> LeakScopeTracker:
        """Itself, as ``get_tracker(..., unwrap=True)`` returns it."""
        return self

    def log_to_trackers_of(self, accelerator: Accelerator) -> LeakScopeTracker:
        """Log memory to the other trackers of an accelerator too; return itself."""
        self._accelerator = weakref.ref(accelerator)
        return self

    @contained
    def start(self) -> None:
        """Begin to record, or join."""
        self._begin()

    @contained
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Begin to record, where the version of Accelerate has no :meth:`start`."""
        if self.training.session is None:
            self._begin()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log memory where something else is logged."""
        figures, others = self._to_log() or ({}, ())
        for tracker in others:
            # Not contained: what is raised in there is that tracker's own.
            tracker.log(dict(figures), step=step)

    def _begin(self) -> None:
        self.training.begin(claims_control=False)
        self._to_log()

    @contained
    def finish(self) -> None:
        """Record no more, unless somebody else does."""
        self.training.end()

    @contained
    def _to_log(self) -> tuple[dict[str, float], list[Any]] | None:
        accelerator = None if self._accelerator is None else self._accelerator()
        if accelerator is None:
            return None
        others = [t for t in accelerator.trackers if not isinstance(t, LeakScopeTracker)]
        self.training.draws_memory()
        loaders = accelerator._dataloaders
        if len(loaders) != self._loaders:
            self._upkeep.warn(*loaders[self._loaders :])
            self._loaders = len(loaders)
        return memory_figures(), others
