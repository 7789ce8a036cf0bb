"""Batches of very different length, one much longer than all others late in the run."""

import random

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 300


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(40, 128)
        self.head = nn.Linear(128, 30)

    def forward(self, x, lengths):
        hidden = F.relu(self.project(x))
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return self.head((hidden * mask[..., None]).sum(1) / lengths[:, None])


def collate(step):
    longest = 4000 if step == 180 else random.randint(50, 900)
    lengths = torch.randint(longest // 2, longest + 1, (8,))
    return torch.rand(8, longest, 40), lengths, torch.randint(0, 30, (8,))


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        x, lengths, y = collate(step)
        loss = F.cross_entropy(model(x, lengths), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
