"""Seconds of a run within a mode that counts its operations, its default device set."""

import time

import torch
from driving import train
from torch.utils.flop_counter import FlopCounterMode

torch.set_default_device("cpu")
with FlopCounterMode(display=False) as counter:
    train(in_step=lambda model, x: time.sleep(0.1), epochs=6)
print(counter.get_total_flops())
