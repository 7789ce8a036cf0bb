"""For Keras 3 on the torch backend.

>>> from leakscope.keras import LeakScopeCallback
>>> model.fit(..., callbacks=[LeakScopeCallback()])
"""

from __future__ import annotations

from leakscope.capture.frameworks.keras import LeakScopeCallback

__all__ = ["LeakScopeCallback"]
