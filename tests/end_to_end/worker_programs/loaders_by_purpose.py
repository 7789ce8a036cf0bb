"""Three loaders keep their workers from the first epoch on; a fourth is recreated and dropped."""

import torch
from torch.utils.data import DataLoader, Dataset
from workers_loop import METHOD, train_epoch


class FrameDataset(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        return torch.rand(64), index % 3


def load(dataset, **options):
    return DataLoader(dataset, 16, multiprocessing_context=METHOD, **options)


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = FrameDataset()
    train, validation, test = (
        load(dataset, num_workers=1, persistent_workers=True) for _ in range(3)
    )
    for epoch in range(8):
        train_epoch(train, epoch)
        for loader in (validation, test, load(dataset, num_workers=2)):
            seen = sum(len(x) for x, _ in loader)
        print(f"epoch {epoch}: looked at {seen}")
