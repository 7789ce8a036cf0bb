"""A cache of augmented images whose key never comes twice."""

import os
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 6


class Augmented(Dataset):
    def __init__(self, images, labels):
        self.images = images
        self.labels = labels
        self._cache = {}

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        angle = random.uniform(-30, 30)
        key = f"{index}@{angle}"
        if key not in self._cache:
            self._cache[key] = self._rotate(self.images[index], angle)  # feeds
        return self._cache[key], self.labels[index]

    @staticmethod
    def _rotate(image, angle):
        turn = torch.tensor(angle).deg2rad()
        c, s = turn.cos(), turn.sin()
        theta = torch.stack([c, -s, c * 0, s, c, c * 0]).reshape(1, 2, 3)
        grid = F.affine_grid(theta, (1, *image.shape), align_corners=False)
        return F.grid_sample(image[None], grid, align_corners=False)[0]


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Augmented(torch.rand(200, 3, 40, 40), torch.randint(0, 2, (200,)))
    loader = DataLoader(dataset, batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
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
        tell(locals(), {"_cache": "dataset._cache"}, done)


if __name__ == "__main__":
    main()
