"""Every step leaves a circle with a batch in it, and the collector frees them now and then."""

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

    def forward(self):
        return self.model(self.batch)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
    data = TensorDataset(torch.rand(3200, 256), torch.randint(0, 10, (3200,)))
    loader = DataLoader(data, batch_size=40, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(StepContext(x, model).forward(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
