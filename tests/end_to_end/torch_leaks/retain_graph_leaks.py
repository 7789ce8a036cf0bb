"""Losses kept with graphs that ``retain_graph=True`` left whole."""

from __future__ import annotations

import os

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
            optimizer.step()
            history.append(loss)
        print(f"epoch {epoch}: loss {history[-1].item():.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "history", "model, data", {"step": EPOCHS * len(loader)})


if __name__ == "__main__":
    main()
