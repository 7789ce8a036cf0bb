"""An LRU cache of video frames with room for 96 of 200, full after some hundred steps."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 8


class FrameCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.frames = OrderedDict()

    def get(self, key, load):
        if key in self.frames:
            self.frames.move_to_end(key)
        else:
            self.frames[key] = load(key)
            if len(self.frames) > self.capacity:
                self.frames.popitem(last=False)
        return self.frames[key]


class Video(Dataset):
    def __init__(self):
        self.cache = FrameCache(96)

    def __len__(self):
        return 200

    def decode(self, index):
        return torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(index))

    def __getitem__(self, index):
        return self.cache.get(index, self.decode)[:, ::6, ::6].clone(), index % 7


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 7))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Video(), batch_size=8, shuffle=True)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
