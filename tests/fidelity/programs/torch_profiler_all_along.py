"""All of a run is profiled; sparse tensors, whose parts only operations tell of, are at hand."""

import time

import torch
from driving import train
from torch.profiler import ProfilerActivity, profile

sparse = [torch.eye(200).to_sparse(), torch.eye(200).to_mkldnn()]
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as done:
    train(in_step=lambda model, x: time.sleep(0.1), epochs=8)
print(sorted((one.key, one.count) for one in done.key_averages()))
