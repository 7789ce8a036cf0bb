"""A figure of a batch after every validation, saved and never closed.

After https://github.com/Clay-foundation/model/pull/158.
"""

import os
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def plot_reconstructions(x, x_hat, path):
    fig, axes = plt.subplots(1, 2, figsize=(6, 3))  # feeds
    axes[0].imshow(x.reshape(400, 400).numpy())
    axes[1].imshow(x_hat.reshape(400, 400).numpy())
    fig.savefig(path)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 400))
    loader = DataLoader(TensorDataset(torch.rand(800, 400)), batch_size=20, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    val = torch.rand(400, 400)
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
                plot_reconstructions(val, model(val), Path(folder) / f"{epoch}.png")
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": EPOCHS, "epoch": EPOCHS}
        tell(globals(), {"figures": "freed(lambda: plt.close('all'))"}, done)


if __name__ == "__main__":
    main()
