"""A figure for each epoch, saved and never closed."""

import tempfile
import warnings
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 10


def draw(losses, folder, epoch):
    figure, axes = plt.subplots()
    axes.plot(losses)
    axes.imshow(torch.rand(256, 256).numpy())
    figure.savefig(Path(folder) / f"{epoch}.png", dpi=50)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    model = nn.Linear(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(640, 32), torch.randint(0, 4, (640,)))
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(EPOCHS):
            losses = []
            for x, y in DataLoader(data, batch_size=32):
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            draw(losses, folder, epoch)
            print("epoch", epoch, "figures", len(plt.get_fignums()))


if __name__ == "__main__":
    main()
