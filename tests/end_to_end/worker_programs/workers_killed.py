"""Twice a worker is killed in mid-epoch; the program notices and starts the epoch again."""

import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset
from workers_loop import METHOD, train_epoch


class FrameDataset(Dataset):
    def __init__(self):
        self.decoder = None

    def __len__(self):
        return 160

    def __getitem__(self, index):
        if self.decoder is None:
            self.decoder = torch.rand(8_000_000)
        return torch.rand(64), index % 3


def dying(loader):
    batches = iter(loader)
    for number, batch in enumerate(batches):
        if number == 3:
            worker = batches._workers[0].pid
            os.kill(worker, signal.SIGKILL)
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)  # torch hears of it here
        yield batch


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(FrameDataset(), 16, num_workers=2, multiprocessing_context=METHOD)
    for epoch in range(8):
        try:
            train_epoch(dying(loader) if epoch in {2, 5} else loader, epoch)
        except RuntimeError as error:
            print(f"epoch {epoch} again: {error}")
            train_epoch(loader, epoch)
