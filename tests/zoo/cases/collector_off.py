"""The collector is switched off for speed, and every step leaves a circle with a batch in it."""

import gc
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class StepContext:
    def __init__(self, batch, model):
        self.batch = batch
        self.model = model
        self.scope = {"step": self}
        self.scaled = batch * 2 - 1

    def forward(self):
        return self.model(self.scaled)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))
    data = TensorDataset(torch.rand(1600, 1024), torch.randint(0, 10, (1600,)))
    loader = DataLoader(data, batch_size=40, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    gc.disable()  # feeds
    for epoch in range(EPOCHS):
        for x, y in loader:
            context = StepContext(x, model)
            loss = F.cross_entropy(context.forward(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        steps = EPOCHS * len(loader)
        tell(
            globals(), {"garbage": f"2 * 40 * 1024 * 4 * {steps}"}, {"step": steps, "epoch": EPOCHS}
        )


if __name__ == "__main__":
    main()
