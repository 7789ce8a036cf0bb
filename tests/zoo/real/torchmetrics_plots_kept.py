"""Figures that torchmetrics plots, closed and yet kept in a list.

After https://github.com/pympler/pympler/issues/40: ``close`` takes a figure from pyplot's register,
and what else refers to it keeps all of it.
"""

import os
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassConfusionMatrix

EPOCHS = 8


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(1600, 64), torch.randint(0, 4, (1600,)))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    confusion = MulticlassConfusionMatrix(4)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(EPOCHS):
            model.train()
            for x, y in train_loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for x, y in DataLoader(data, batch_size=160):
                    confusion.update(model(x), y)
            figure, _ = confusion.plot()
            figure.savefig(Path(folder) / f"{epoch}.png")
            figures.append(figure)  # feeds
            plt.close(figure)
            confusion.reset()
            print("epoch", epoch, "loss", loss.item())
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        del figure
        kept = "freed(lambda: figures.clear())"
        tell(locals(), {"figures": kept}, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
