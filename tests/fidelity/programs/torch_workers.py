"""Batches come from worker processes, which draw random numbers of their own."""

import random

import torch
from driving import seed, tell
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(4) + index + random.random()


if __name__ == "__main__":
    seed()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for batch in DataLoader(Noise(), batch_size=4, num_workers=1):
            model(batch).mean().backward()
            optimizer.step()
    tell(model)
