"""Trains on volumes in HDF5 files; each is opened, read and let go."""

import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOLUMES, SIDE, STEPS = 300, 48, 300


def write(folder):
    rng = np.random.default_rng(0)
    for number in range(VOLUMES):
        data = rng.normal(size=(SIDE, SIDE, SIDE)).astype(np.float32)
        with h5py.File(folder / f"scan{number}.h5", "w") as file:
            file.create_dataset("volume", data=data, chunks=(12, SIDE, SIDE))


class Volumes:
    """Reads patches of volumes by name."""

    def __init__(self, folder):
        self.folder = folder

    def patches(self, number):
        with h5py.File(self.folder / f"scan{number}.h5") as file:
            volume = file["volume"]
            return torch.from_numpy(np.stack([volume[at : at + 2] for at in range(0, SIDE, 6)]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(2, 8, 5, stride=4)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(F.relu(self.body(x)).mean((2, 3)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        volumes, model = Volumes(Path(folder)), Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(1, STEPS + 1):
            x = volumes.patches(step % VOLUMES)
            loss = F.mse_loss(model(x).squeeze(1), x.std((1, 2, 3)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
