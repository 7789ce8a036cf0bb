"""DataLoaders with workers: persistent ones for a map, new ones each epoch for a stream."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Pictures(Dataset):
    def __len__(self):
        return 1280

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 32, 32, generator=generator), index % 10


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 480, worker.num_workers):
            yield torch.full((3, 32, 32), index / 480.0), index % 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train_loader = DataLoader(
        Pictures(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    val_loader = DataLoader(Stream(), batch_size=32, num_workers=1)
    for epoch in range(7):
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in val_loader)
        print("epoch", epoch, "loss", loss.item(), "right", right)


if __name__ == "__main__":
    main()
