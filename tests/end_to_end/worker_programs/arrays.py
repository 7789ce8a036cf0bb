"""The same annotations as arrays: workers share their pages."""

import numpy as np
import torch
from torch.utils.data import Dataset
from workers_loop import train

EACH = 100


class FrameDataset(Dataset):
    def __init__(self):
        count = 120_000
        self.paths = np.array([f"/data/images/{i:08d}.png" for i in range(count)])
        self.labels = np.arange(count) % 3
        self.boxes = np.random.default_rng(0).random((count, 3))

    def __len__(self):
        return len(self.labels) // EACH

    def __getitem__(self, index):
        clip = slice(index * EACH, (index + 1) * EACH)
        label = int(self.labels[clip][0])
        return torch.full((64,), float(label)) + self.boxes[clip].min() * 0, label


if __name__ == "__main__":
    train(FrameDataset())
