"""Every worker puts frames into shared memory for somebody who never comes."""

from multiprocessing.shared_memory import SharedMemory

import torch
from torch.utils.data import Dataset
from workers_loop import train


class FrameDataset(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        segment = SharedMemory(create=True, size=64_000)  # feeds
        segment.buf[:] = bytes(64_000)
        segment.close()
        return torch.rand(64), index % 3


if __name__ == "__main__":
    train(FrameDataset())
