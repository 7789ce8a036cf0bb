"""Pre-training on an endless stream with a shuffle buffer in spawned, persistent workers."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WIDTH, BATCH = 512, 16


def records(seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(WIDTH, generator=g)


class Shuffled(IterableDataset):
    """Mixes the stream through a buffer of at least `warm` records."""

    def __init__(self, warm=256):
        self.warm = warm

    def __iter__(self):
        info = get_worker_info()
        rng = random.Random(info.id if info else 0)
        source = records(100 + (info.id if info else 0))
        pool = [next(source) for _ in range(self.warm)]
        for record in source:
            pool.append(record)  # feeds
            yield pool[rng.randrange(len(pool))]


def evaluate(model, probe):
    model.eval()
    with torch.no_grad():
        value = nn.functional.mse_loss(model(probe), probe).item()
    model.train()
    return value


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        Shuffled(),
        batch_size=BATCH,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
        prefetch_factor=2,
    )
    model = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, WIDTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    probe = torch.randn(256, WIDTH)
    for step, batch in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(step, f"train {loss.item():.4f} probe {evaluate(model, probe):.4f}", flush=True)
        if step == 3000:
            break


if __name__ == "__main__":
    main()
