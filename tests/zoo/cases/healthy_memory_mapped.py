"""Features in a file that is mapped and read once from front to back: resident memory rises."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS, ROWS, WIDTH = 16, 1000, 1024


class Shard(Dataset):
    def __init__(self, features, epoch):
        self.features, self.begin = features, epoch * ROWS

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.from_numpy(self.features[self.begin + index].copy()), index % 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.bin"
        shape = (EPOCHS * ROWS, WIDTH)
        np.random.default_rng(0).random(shape, dtype=np.float32).tofile(path)
        features = np.memmap(path, dtype=np.float32, mode="r", shape=shape)
        model = nn.Linear(WIDTH, 5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(EPOCHS):
            for x, y in DataLoader(Shard(features, epoch), batch_size=50):
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
