"""An endless iterator made by itertools.cycle, which keeps every batch of its first pass.

After https://github.com/pytorch/pytorch/issues/23900.
"""

import itertools
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

STEPS = 400


class Frames(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.rand(3, 24, 24), index % 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Frames(), batch_size=16, shuffle=True)
    batches = itertools.cycle(loader)  # feeds
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    model(torch.rand(1, 3, 24, 24))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        x, y = next(batches)  # feeds
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "STEPS * (x.untyped_storage().nbytes() + y.untyped_storage().nbytes())"
        tell({**globals(), **locals()}, {"batches": kept}, {"step": STEPS})


if __name__ == "__main__":
    main()
