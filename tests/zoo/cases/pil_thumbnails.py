"""A dataset that keeps an opened picture for each time that it is drawn."""

import io
import os

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 6


def encoded(seed):
    pixels = np.random.default_rng(seed).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


class Photos(Dataset):
    def __init__(self, count):
        self.files = [encoded(seed) for seed in range(count)]
        self.opened = []

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        self.opened.append(image)  # feeds
        small = np.asarray(image.resize((16, 16)), dtype=np.float32) / 255
        return torch.from_numpy(small).permute(2, 0, 1), index % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    photos = Photos(240)
    loader = DataLoader(photos, batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"opened": "photos.opened"}, done)


if __name__ == "__main__":
    main()
