"""Classifies rare faults from workers' batches; a sampler weighs samples by their latest losses."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

EPOCHS, SAMPLES, BATCH, LENGTH, CLASSES = 12, 1200, 24, 192, 5


class Faults(Dataset):
    """Vibrations of a bearing; each worker keeps the last window of each kind for mixing."""

    def __init__(self):
        self.latest = {}

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        random_ = torch.Generator().manual_seed(index)
        kind = min(CLASSES - 1, int(torch.empty(1).exponential_(1.2, generator=random_)))
        time = torch.arange(LENGTH, dtype=torch.float32)
        hits = (time % (11 + 5 * kind) < 2).float() * (1 + kind)
        window = hits * torch.randn(3, LENGTH, generator=random_)
        window = window + torch.randn(3, LENGTH, generator=random_)
        if kind in self.latest and index % 3 == 0:
            window = 0.8 * window + 0.2 * self.latest[kind]
        self.latest[kind] = window
        return window, kind, index


class ByLoss(Sampler):
    """Draws samples by the loss that they had when they were last met."""

    def __init__(self, size):
        self.losses = torch.ones(size)
        self.size = size
        self.random = torch.Generator().manual_seed(0)
        self.order = []

    def note(self, index, losses):
        self.losses[index] = losses.detach().clamp(0.05, 5.0)

    def __iter__(self):
        drawn = torch.multinomial(self.losses, self.size // 2, True, generator=self.random)
        self.order = drawn.tolist()
        yield from self.order

    def __len__(self):
        return self.size // 2


def network(width=32):
    return nn.Sequential(
        nn.Conv1d(3, width, 9, 2, 4), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Conv1d(width, 2 * width, 9, 2, 4), nn.BatchNorm1d(2 * width), nn.ReLU(),
        nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(8 * width, CLASSES),
    )  # fmt: skip


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, sampler = network(), ByLoss(SAMPLES)
    loader = DataLoader(
        Faults(), BATCH, sampler=sampler, num_workers=2, persistent_workers=True, prefetch_factor=2
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.08, EPOCHS * len(loader))
    for epoch in range(EPOCHS):
        right = torch.zeros(CLASSES)
        met = torch.zeros(CLASSES)
        for windows, kinds, index in loader:
            logits = model(windows)
            losses = nn.functional.cross_entropy(logits, kinds, reduction="none")
            optimizer.zero_grad(set_to_none=True)
            losses.mean().backward()
            optimizer.step()
            schedule.step()
            sampler.note(index, losses)
            right.index_add_(0, kinds, (logits.argmax(1) == kinds).float())
            met.index_add_(0, kinds, torch.ones(len(kinds)))
        shares = [round(share, 2) for share in (right / met.clamp(min=1)).tolist()]
        print(f"epoch {epoch}: {shares}", flush=True)


if __name__ == "__main__":
    main()
