"""Twice a worker is killed in mid-epoch; the program notices and starts the epoch again."""

import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset
from workers_loop import METHOD, train_epoch


class FrameDataset(Dataset):
    def __init__(self):
        self.deadly = False
        self.decoder = None

    def __len__(self):
        return 160

    def __getitem__(self, index):
        if self.decoder is None:
            self.decoder = torch.rand(8_000_000)
        if self.deadly and index == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.rand(64), index % 3


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = FrameDataset()
    loader = DataLoader(dataset, 16, num_workers=2, multiprocessing_context=METHOD)
    for epoch in range(8):
        dataset.deadly = epoch in {2, 5}
        try:
            train_epoch(loader, epoch)
        except (RuntimeError, OSError) as error:
            print(f"epoch {epoch} again: {error}")
            dataset.deadly = False
            train_epoch(loader, epoch)
