"""An average meter that sums losses which still have their graph, and is never reset.

After https://github.com/rabbityl/lepard/issues/12.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.sum = 0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value * n  # feeds
        self.count += n

    @property
    def avg(self):
        return float(self.sum) / self.count


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(96, 200)
        self.decoder = nn.Linear(200, 96)

    def forward(self, x):
        hidden = torch.tanh(self.encoder(x))
        return self.decoder(hidden), hidden


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Autoencoder()
    loader = DataLoader(TensorDataset(torch.rand(1280, 96)), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meters = {"reconstruction": AverageMeter("rec"), "sparsity": AverageMeter("sparse")}
    for epoch in range(EPOCHS):
        for (x,) in loader:
            reconstruction, hidden = model(x)
            loss = F.mse_loss(reconstruction, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                meters["reconstruction"].update(loss.item(), len(x))
            meters["sparsity"].update(model(x)[1].square().mean(), len(x))
        print(f"epoch {epoch}: " + ", ".join(f"{m.name} {m.avg:.4f}" for m in meters.values()))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "freed(lambda: setattr(meters['sparsity'], 'sum', 0))"
        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"sum": kept}, done)


if __name__ == "__main__":
    main()
