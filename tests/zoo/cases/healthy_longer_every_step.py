"""Sequences get longer from step to step: the loss carries a larger graph each time, and one alone.

At module level, where the last loss is there between the steps.
"""

import torch
from torch import nn


class Copier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)
        self.out = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = memory = torch.zeros(x.size(0), 128)
        outputs = []
        for at in range(x.size(1)):
            hidden, memory = self.cell(x[:, at], (hidden, memory))
            outputs.append(self.out(hidden))
        return torch.stack(outputs, 1)


torch.manual_seed(0)
net = Copier()
optimizer = torch.optim.Adam(net.parameters())
step = 0
for epoch in range(12):
    for _ in range(20):
        step += 1
        x = torch.randn(16, 8 + step // 3, 64)
        loss = ((net(x) - x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
