"""Experiment trackers: memory beside the loss, in the runs that the program itself has open.

No tracker is ever imported here: one that the program hasn't imported has no run.
"""

from leakscope.instrument.trackers.trackers import Trackers

__all__ = ["Trackers"]
