"""A profiler that lists Python's calls too: of this file and of torch they are the same.

torch keeps pointers into the code of what runs. That of a module which is imported meanwhile is
freed, and whatever lies there afterwards is read as its name, plainly too; one of torch's own would
be imported when the profile begins.
"""

import contextlib

from driving import train
from torch.profiler import ProfilerActivity, profile

with contextlib.suppress(ImportError):  # other versions have no such module
    import torch.profiler._cupti_monitor

with profile(activities=[ProfilerActivity.CPU], with_stack=True) as done:
    train(epochs=2)
train()
print(sorted((one.key, one.count) for one in done.key_averages() if one.key.startswith("aten")))
ours = [one.name for one in done.events() if "census" in one.name]
print(len(ours))
