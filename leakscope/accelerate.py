"""For Accelerate.

>>> from leakscope.accelerate import LeakScopeTracker
>>> tracker = LeakScopeTracker()
>>> accelerator = Accelerator(log_with=[tracker, "tensorboard"], project_dir="logs")
>>> tracker.log_to_trackers_of(accelerator)  # memory alongside the loss, in the other trackers
>>> accelerator.init_trackers("run")       # from here…
>>> accelerator.end_training()             # …to here is recorded
"""

from __future__ import annotations

from leakscope.capture.frameworks.accelerate import LeakScopeTracker

__all__ = ["LeakScopeTracker"]
