"""Every sample enters itself into a registry of its class when it is made."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sample:
    registry = {}

    def __init__(self, index, epoch, pixels):
        self.index = index
        self.pixels = pixels
        Sample.registry[epoch, index] = self  # feeds

    def normalised(self):
        return (self.pixels - self.pixels.mean()) / self.pixels.std()


class Noise(Dataset):
    def __init__(self, length, side):
        self.length, self.side, self.epoch = length, side, 0
        self.random = np.random.default_rng(0)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        pixels = self.random.random((3, self.side, self.side), dtype=np.float32)
        sample = Sample(index, self.epoch, pixels)
        return torch.from_numpy(sample.normalised()), index % 2


torch.manual_seed(0)
torch.set_num_threads(1)
dataset = Noise(320, 32)
loader = DataLoader(dataset, batch_size=16, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(128, 2),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loss_function = nn.CrossEntropyLoss()

EPOCHS = 6
for epoch in range(EPOCHS):
    dataset.epoch = epoch
    for images, labels in loader:
        loss = loss_function(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    steps = EPOCHS * len(loader)
    tell(globals(), {"registry": "Sample.registry"}, {"step": steps, "epoch": EPOCHS})
