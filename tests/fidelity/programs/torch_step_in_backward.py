"""Optimizers step from hooks of the backward pass, as trainers do to save memory."""

import time

import torch
from driving import seed, tell
from torch import nn

seed()
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
stepped = []


def step(parameter: torch.Tensor) -> None:
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()
    stepped.append(tuple(parameter.shape))


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)
for _ in range(80):
    model(torch.randn(8, 16)).pow(2).mean().backward()
    time.sleep(0.05)
print(len(stepped), stepped[:4])
tell(model)
