"""Modules on the meta device are trained, which computes nothing."""

import torch
from driving import tell, train
from torch import nn

with torch.device("meta"):
    model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for _ in range(3):
    model.train()
    for _ in range(4):
        model(torch.empty(8, 64, device="meta")).sum().backward()
        optimizer.step()
    kept.append(model.weight.grad)
    model.eval()
    model(torch.empty(8, 64, device="meta"))
print([tuple(one.shape) for one in kept], model.weight.device)
train()
tell()
