"""For the Hugging Face trainer.

>>> from leakscope.transformers import LeakScopeCallback
>>> trainer = Trainer(..., callbacks=[LeakScopeCallback()])
"""

from __future__ import annotations

from leakscope.capture.frameworks.transformers import LeakScopeCallback

__all__ = ["LeakScopeCallback"]
