"""torch's profiler around the whole training: its events are kept until it ends.

After https://github.com/Lightning-AI/pytorch-lightning/issues/10717. With a schedule, as the
documentation has it, they are let go.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(960, 256), torch.randint(0, 10, (960,)))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    val_loader = DataLoader(data, batch_size=128)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):  # feeds
        for epoch in range(EPOCHS):
            model.train()
            for x, y in train_loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                losses = [F.cross_entropy(model(x), y).item() for x, y in val_loader]
            print("epoch", epoch, sum(losses) / len(losses), flush=True)
        if "COUNT_KEPT" in os.environ:
            print("kept bytes {}")


if __name__ == "__main__":
    main()
