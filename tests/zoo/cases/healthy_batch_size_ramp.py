"""Contrastive training whose batches grow in four stages instead of a falling learning rate."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STAGES = (32, 64, 128, 256)
EPOCHS = 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(300, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 64)
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def contrast(one, other):
    scores = one @ other.T / 0.1
    return F.cross_entropy(scores, torch.arange(len(one)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2048, 300))
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for size in STAGES:
        loader = DataLoader(data, batch_size=size, shuffle=True, drop_last=True)
        for epoch in range(EPOCHS):
            for (x,) in loader:
                one = model(x + 0.3 * torch.randn_like(x))
                other = model(x + 0.3 * torch.randn_like(x))
                loss = contrast(one, other)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"batches of {size}, epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
