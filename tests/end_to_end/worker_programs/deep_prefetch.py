"""Large batches prefetched far ahead: much memory, and always as much."""

import torch
from torch.utils.data import Dataset
from workers_loop import train


class FrameDataset(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return torch.rand(64), index % 3, torch.rand(20_000)


if __name__ == "__main__":
    train(FrameDataset(), prefetch_factor=16)
