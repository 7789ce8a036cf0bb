"""Training on clips that two persistent workers of a DataLoader decode from an endless stream."""

import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ClipStream(IterableDataset):
    def __init__(self, clips):
        self.clips = clips
        self.decoded = {}

    def decode(self, number):
        time.sleep(0.004)
        rng = np.random.default_rng(number)
        return rng.integers(0, 255, (8, 48, 48, 3), dtype=np.uint8)

    def fetch(self, number):
        if number not in self.decoded:
            self.decoded[number] = self.decode(number)  # feeds
        return self.decoded[number]

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, self.clips, info.num_workers):
            clip = self.fetch(number)
            yield torch.from_numpy(clip.astype(np.float32)).mean((1, 2)), number % 5


def main():
    torch.manual_seed(0)
    stream = ClipStream(clips=5600)
    loader = DataLoader(stream, batch_size=8, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (clips, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(clips / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print("step", step, "loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
