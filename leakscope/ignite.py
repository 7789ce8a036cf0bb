"""For PyTorch-Ignite.

>>> from leakscope.ignite import LeakScope
>>> LeakScope().attach(trainer, evaluators={"val": evaluator})
"""

from __future__ import annotations

from leakscope.capture.frameworks.ignite import LeakScope

__all__ = ["LeakScope"]
