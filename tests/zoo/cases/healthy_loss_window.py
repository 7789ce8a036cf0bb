"""The last hundred losses with their inputs, cut at every step; the rest is counted only."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class SpikeDetector:
    def __init__(self, window=50):
        self.window = window
        self.recent = []
        self.spikes = 0

    def see(self, loss, x):
        mean = sum(old for old, _ in self.recent) / max(len(self.recent), 1)
        self.spikes += bool(self.recent) and loss > 2 * mean
        self.recent.append((loss, x))
        self.recent = self.recent[-self.window :]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
    data = TensorDataset(torch.rand(1280, 512), torch.randint(0, 10, (1280,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    detector = SpikeDetector()
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            detector.see(loss.item(), x)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {detector.spikes} spikes")


if __name__ == "__main__":
    main()
