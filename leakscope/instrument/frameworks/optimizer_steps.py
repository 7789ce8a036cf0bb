"""Whether an optimizer has stepped, for frameworks whose iterations don't tell."""

from __future__ import annotations

from typing import Any

from leakscope.instrument.auto.classes import opaque


class OptimizerSteps:
    """Listens to every ``torch.optim.Optimizer`` of the process."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._any = False

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process doesn't listen yet."""
        return {"_handle": None, "_any": False}

    def listen(self) -> None:
        """Begin to listen."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        @opaque
        def after_step(optimizer: object, args: object, kwargs: object) -> None:
            self._any = True

        if self._handle is None:
            self._any = False
            self._handle = register_optimizer_step_post_hook(after_step)

    @property
    def has_stepped(self) -> bool:
        """Whether any has since :meth:`since_last_asked` was called."""
        return self._any

    def since_last_asked(self) -> bool:
        """Return whether any has stepped since this was last asked."""
        stepped, self._any = self._any, False
        return stepped

    def close(self) -> None:
        """Listen no more."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
