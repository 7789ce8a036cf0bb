"""Losses given undetached to a metric that gathers them.

After https://github.com/Lightning-AI/pytorch-lightning/issues/4098, where each kept its graph. With
torchmetrics 1.9 neither ``update`` nor calling the metric does: what it keeps needs no gradient.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import CatMetric

EPOCHS = 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 100))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(1600, 64), torch.randint(0, 100, (1600,)))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    losses = CatMetric()
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            each = F.cross_entropy(model(x), y, reduction="none")
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            losses(each)
        print("epoch", epoch, "kept", len(losses.value), losses.value[0].requires_grad)


if __name__ == "__main__":
    main()
