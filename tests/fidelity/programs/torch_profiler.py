"""A few steps of each epoch are profiled, with shapes and memory."""

import torch
from driving import train
from torch.profiler import ProfilerActivity, profile, schedule

told = []


def ready(done: profile) -> None:
    told.append(sorted((one.key, one.count) for one in done.key_averages()))


profiler = profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=ready,
    record_shapes=True,
    profile_memory=True,
)
sparse = torch.eye(200).to_sparse()
with profiler:
    train(in_step=lambda model, x: profiler.step())
print(told)
