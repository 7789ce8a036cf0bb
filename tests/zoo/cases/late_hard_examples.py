"""Hard examples are mined from the fifth epoch on, and kept for good."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, MINE_FROM = 12, 5


class Miner:
    def __init__(self, start):
        self.start = start
        self.hard = []

    def look(self, epoch, x, losses):
        if epoch < self.start:
            return
        worst = losses.topk(len(x) // 2).indices
        self.hard.append((x[worst], losses[worst].detach()))  # feeds


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
    data = TensorDataset(torch.rand(1280, 512), torch.randint(0, 10, (1280,)))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    miner = Miner(MINE_FROM)
    for epoch in range(EPOCHS):
        for x, y in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            miner.look(epoch, x, losses)
        print(f"epoch {epoch}: loss {losses.mean().item():.3f}, {len(miner.hard)} hard batches")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        growing = EPOCHS - MINE_FROM
        done = {"step": growing * len(loader), "epoch": growing}
        tell(locals(), {"hard": "miner.hard"}, done)


if __name__ == "__main__":
    main()
