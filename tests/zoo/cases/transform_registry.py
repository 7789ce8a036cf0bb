"""A metaclass registers every transform, so that a run can be replayed; batches make some."""

import os
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Registered(type):
    instances = {}

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        Registered.instances.setdefault(cls.__name__, []).append(made)  # feeds
        return made


class Transform(metaclass=Registered):
    __slots__ = ()

    def __call__(self, image):
        raise NotImplementedError


class Noise(Transform):
    __slots__ = ("pattern",)

    def __init__(self, size):
        self.pattern = torch.randn(size, size) * 0.1

    def __call__(self, image):
        return image + self.pattern


class Shift(Transform):
    __slots__ = ("offset",)

    def __init__(self, most):
        self.offset = (random.randint(-most, most), random.randint(-most, most))

    def __call__(self, image):
        return torch.roll(image, self.offset, (-2, -1))


class Images(Dataset):
    def __init__(self, count, size):
        self.size = size
        self.images = torch.rand(count, 1, size, size)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        for transform in (Shift(3), Noise(self.size)):
            image = transform(image)
        return image, int(self.images[index].mean() * 1000) % 3


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Images(240, 40), batch_size=12, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(1600, 64), nn.GELU(), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
for epoch in range(8):
    for image, label in loader:
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, lr {scheduler.get_last_lr()[0]:.5f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    tell(globals(), {"instances": "Registered.instances"}, {"step": 160, "epoch": 8})
