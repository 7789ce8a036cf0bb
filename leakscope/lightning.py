"""For Lightning, under either of its names.

>>> from leakscope.lightning import LeakScopeCallback
>>> trainer = Trainer(..., callbacks=[LeakScopeCallback()])

``lightning.pytorch`` and ``pytorch_lightning`` are two packages with a ``Callback`` each. Ours is a
subclass of both, as far as the program has imported them, or of the first if it has neither.
"""

from __future__ import annotations

import sys
from typing import Any

from leakscope.capture.frameworks.lightning import LightningHooks

__all__ = ["LeakScopeCallback"]

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _callbacks() -> tuple[type[Any], ...]:
    imported = [sys.modules[name] for name in _NAMES if name in sys.modules]
    if imported:
        return tuple(module.Callback for module in imported)
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    return (Callback,)


LeakScopeCallback: type[Any] = type(
    "LeakScopeCallback",
    (LightningHooks, *_callbacks()),
    {"__doc__": LightningHooks.__doc__, "__module__": __name__},
)
