"""A figure after every validation, saved and closed."""

import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def plot(x, x_hat, path):
    fig, axes = plt.subplots(1, 2, figsize=(6, 3))
    for ax, picture in zip(axes, (x, x_hat), strict=True):
        ax.imshow(picture.reshape(200, 200).numpy())
    fig.savefig(path)
    plt.close(fig)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 400))
    loader = DataLoader(TensorDataset(torch.rand(800, 400)), batch_size=20, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    val = torch.rand(100, 400)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(EPOCHS):
            model.train()
            for (x,) in loader:
                loss = nn.functional.mse_loss(model(x), x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                plot(val, model(val), Path(folder) / f"{epoch}.png")
            print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
