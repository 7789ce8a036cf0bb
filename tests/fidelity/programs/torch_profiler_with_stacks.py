"""A profiler that lists Python's calls too: of this file and of torch they are the same."""

import torch
from driving import train
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU], with_stack=True) as done:
    train(epochs=2)
train()
print(sorted((one.key, one.count) for one in done.key_averages() if one.key.startswith("aten")))
ours = [one.name for one in done.events() if "census" in one.name]
print(len(ours))
