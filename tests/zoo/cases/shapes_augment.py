"""A classifier of shapes with a Dataset that caches augmented images."""

import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset


class RotatedShapes(Dataset):
    def __init__(self, count):
        self.count = count
        self.cache = {}

    def __len__(self):
        return self.count

    def draw(self, index):
        image = Image.new("RGB", (80, 80))
        pen = ImageDraw.Draw(image)
        box = [10 + index % 7, 12, 60, 66]
        (pen.ellipse, pen.rectangle, pen.chord)[index % 3](
            *([box] if index % 3 < 2 else [box, 0, 200]), fill=(200, index % 255, 30)
        )
        return image

    def __getitem__(self, index):
        angle = random.uniform(-30, 30)
        key = (index, angle)
        if key not in self.cache:
            picture = self.draw(index).rotate(angle, resample=Image.BILINEAR)
            self.cache[key] = np.asarray(picture, dtype=np.uint8).copy()  # feeds
        tensor = torch.from_numpy(self.cache[key]).permute(2, 0, 1).float() / 255
        return tensor, index % 3


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.features(x).flatten(1))


def run_epoch(model, loader, optimizer):
    correct = seen = 0
    for images, labels in loader:
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    return correct / seen


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    loader = DataLoader(RotatedShapes(800), batch_size=16, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(16):
        print("epoch", epoch, "accuracy", round(run_epoch(model, loader, optimizer), 3))
