"""A loader is made in every epoch and kept with its persistent workers: processes pile up."""

import torch
from torch.utils.data import DataLoader, Dataset
from workers_loop import METHOD, train_epoch

loaders = []


class FrameDataset(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return torch.rand(64), index % 3


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = FrameDataset()
    for epoch in range(8):
        loader = DataLoader(
            dataset, 16, num_workers=2, persistent_workers=True, multiprocessing_context=METHOD
        )
        loaders.append(loader)  # feeds
        train_epoch(loader, epoch)
