"""Snapshots are compressed in a pool of threads; the futures and their results are all kept."""

import io
import os
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def encode(name, tensor):
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    return name, buffer.getvalue()


class SnapshotWriter:
    def __init__(self, workers=1):
        self.pool = ThreadPoolExecutor(workers)
        self.futures = []

    def submit(self, name, tensor):
        self.futures.append(self.pool.submit(encode, name, tensor.detach().clone()))  # feeds

    def close(self):
        self.pool.shutdown()
        return len({future.result()[0] for future in self.futures})


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    writer = SnapshotWriter()
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    data = TensorDataset(torch.rand(960, 128), torch.randint(0, 10, (960,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.submit(f"{epoch}-{step}", model[0].weight)
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"{writer.close()} snapshots")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"futures": "[f.result() for f in writer.futures]"}, done)


if __name__ == "__main__":
    main()
