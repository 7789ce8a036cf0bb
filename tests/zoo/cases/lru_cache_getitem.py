"""An unbounded lru_cache on a dataset's method whose key has the epoch in it.

After https://github.com/MoonshotAI/Kimi-Audio/issues/117.
"""

import functools
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 6


class Spectrograms(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.waves = torch.rand(count, 2048, generator=generator)
        self.epoch = 0

    def __len__(self):
        return len(self.waves)

    @functools.lru_cache(maxsize=None)
    def augmented(self, index, epoch):
        shifted = torch.roll(self.waves[index], epoch * 17)
        return torch.stft(shifted, 128, return_complex=True, window=torch.hann_window(128)).abs()

    def __getitem__(self, index):
        return self.augmented(index, self.epoch), index % 3  # feeds


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Spectrograms(400)
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 3))
    model(dataset[0][0][None])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        dataset.epoch = epoch
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "dataset.augmented(0, 0).untyped_storage().nbytes() * 400 * EPOCHS"
        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell({**globals(), **locals()}, {"augmented": kept}, done)


if __name__ == "__main__":
    main()
