"""Two backward passes through one graph, as ``retain_graph=True`` is meant to be used."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 768), nn.ReLU(), nn.Linear(768, 10))
    data = TensorDataset(torch.rand(640, 128), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history = []
    for epoch in range(EPOCHS):
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            (0.01 * logits.square().mean()).backward()
            optimizer.step()
            history.append(loss.item())
        print(f"epoch {epoch}: loss {history[-1]:.3f}")


if __name__ == "__main__":
    main()
