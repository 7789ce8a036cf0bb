"""A dataset that decodes each picture once: its cache is full after the first epoch."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 8


class Photos(Dataset):
    def __init__(self, count):
        random = np.random.default_rng(0)
        self.files = []
        for _ in range(count):
            buffer = io.BytesIO()
            pixels = random.integers(0, 255, (48, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(buffer, "PNG")
            self.files.append(buffer.getvalue())
        self.decoded = {}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if index not in self.decoded:
            image = Image.open(io.BytesIO(self.files[index]))
            self.decoded[index] = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)
        return self.decoded[index].permute(2, 0, 1), index % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Photos(320), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Conv2d(3, 4, 7, stride=6), nn.ReLU(), nn.Flatten(), nn.Linear(196, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
