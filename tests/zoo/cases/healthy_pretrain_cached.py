"""Masked pre-training whose Dataset caches decoded images in its first epochs."""

import copy
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class DecodedImages(Dataset):
    def __init__(self, count):
        self.count = count
        self.cache = {}

    def __len__(self):
        return self.count

    def decode(self, index):
        time.sleep(0.002)
        return np.random.default_rng(index).random((3, 64, 64)).astype(np.float32)

    def __getitem__(self, index):
        image = self.cache.get(index)
        if image is None:
            image = self.cache[index] = self.decode(index)
        return torch.from_numpy(image)


class MaskedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.GELU(), nn.Conv2d(16, 64, 1))
        self.decode = nn.ConvTranspose2d(64, 3, 8, 8)

    def forward(self, x, mask):
        return self.decode(self.encode(x) * mask)


def main():
    torch.manual_seed(0)
    data = DecodedImages(600)
    model = MaskedAutoencoder()
    shadow = copy.deepcopy(model).requires_grad_(False)
    checkpoints = deque(maxlen=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(10):
        loader = DataLoader(
            data, batch_size=10, sampler=RandomSampler(data, replacement=True, num_samples=600)
        )
        for images in loader:
            mask = (torch.rand(len(images), 1, 8, 8) > 0.5).float()
            loss = nn.functional.mse_loss(model(images, mask), images)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for s, p in zip(shadow.parameters(), model.parameters()):
                    s.lerp_(p, 0.01)
            time.sleep(0.01)
        checkpoints.append({k: v.clone() for k, v in shadow.state_dict().items()})
        print(
            "epoch",
            epoch,
            "loss",
            round(loss.item(), 4),
            "cached",
            len(data.cache),
            "checkpoints",
            len(checkpoints),
        )


if __name__ == "__main__":
    main()
