"""Histories of floats: losses, rates, norms and times of every step, for a plot at the end."""

import time
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 10


class History:
    def __init__(self):
        self.rows = []
        self.by_name = defaultdict(list)

    def add(self, **values):
        self.rows.append(values)
        for name, value in values.items():
            self.by_name[name].append(value)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))
    data = TensorDataset(torch.rand(1600, 32), torch.randint(0, 5, (1600,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    history = History()
    for epoch in range(EPOCHS):
        for x, y in loader:
            start = time.perf_counter()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            history.add(
                loss=loss.item(),
                norm=norm.item(),
                rate=schedule.get_last_lr()[0],
                seconds=time.perf_counter() - start,
            )
        print(f"epoch {epoch}: loss {history.by_name['loss'][-1]:.3f}")


if __name__ == "__main__":
    main()
