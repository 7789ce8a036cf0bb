"""Trains a small translator of number sequences and profiles a few steps of each epoch."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

EPOCHS = 14


class Sequences(Dataset):
    """Sequences of digits and the same ones sorted."""

    def __init__(self, count, length, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.items = torch.randint(0, 10, (count, length), generator=generator)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        row = self.items[index]
        return row, row.sort().values


class Sorter(nn.Module):
    def __init__(self, width=64, heads=4, layers=1, length=16):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 10)

    def forward(self, rows):
        return self.head(self.encoder(self.embed(rows) + self.position))


class EpochProfiler:
    """Profiles the first steps of an epoch; the table of the slowest operators is printed at last."""

    def __init__(self, active=1):
        self.active = active
        self.traces = []
        self.current = None

    def start(self):
        self.current = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=self.active, repeat=1),
            record_shapes=True,
            on_trace_ready=self.ready,
        )
        self.current.start()

    def ready(self, profiler):
        self.traces.append(profiler.key_averages())

    def step(self):
        self.current.step()

    def stop(self):
        self.current.stop()

    def slowest(self):
        tables = self.traces[-2:]
        return " then ".join(max(t, key=lambda row: row.self_cpu_time_total).key for t in tables)


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.profiler = EpochProfiler()

    def epoch(self):
        total = 0.0
        self.profiler.start()
        for rows, wanted in self.loader:
            loss = nn.functional.cross_entropy(self.model(rows).flatten(0, 1), wanted.flatten())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.profiler.step()
            total += loss.item()
        self.profiler.stop()
        return total / len(self.loader)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(Sorter(), DataLoader(Sequences(1024, 16), batch_size=32, shuffle=True))
    for epoch in range(EPOCHS):
        print(f"epoch {epoch}: loss {trainer.epoch():.4f}", flush=True)
    print("slowest:", trainer.profiler.slowest())
