"""A namespace for debugging gets one attribute a step: no list grows."""

import os
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12
debug = SimpleNamespace()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(512, 512), torch.randint(0, 5, (512,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            setattr(debug, f"inputs_{step}", x)  # feeds
            step += 1
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"debug": "debug"}, {"step": step, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
