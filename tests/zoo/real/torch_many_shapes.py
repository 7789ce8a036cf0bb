"""Pictures of ever other sizes through convolutions, whose primitives oneDNN keeps up to a bound.

It looks like a leak and ends: https://github.com/pytorch/pytorch/issues/32037.
"""

import os

os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = "256"

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(640, 3, 64, 64), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    for epoch in range(8):
        model.train()
        for x, y in loader:
            height, width = torch.randint(24, 65, (2,)).tolist()
            loss = F.cross_entropy(model(x[..., :height, :width]), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
        print("epoch", epoch, "loss", loss.item(), "right", right)


if __name__ == "__main__":
    main()
