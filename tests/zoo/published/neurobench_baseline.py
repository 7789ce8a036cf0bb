"""Benchmarks a network before and after training: NeuroBench 1.0.2 keeps what layers see between.

A run left its hooks on the layers, and what they store was emptied by the next run alone. Repaired
in 1.0.3, where a run closes its hooks (https://github.com/NeuroBench/neurobench/issues/184).
"""

import time

import torch
from neurobench.benchmarks import Benchmark
from neurobench.models import TorchModel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PER_SECOND, SECONDS, BATCH, WIDTH, HIDDEN = 300, 12, 16, 64, 96
METRICS = [
    ["parameter_count", "connection_sparsity"], ["classification_accuracy", "activation_sparsity"],
]  # fmt: skip


def examples(count):
    x = torch.randn(count, WIDTH)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def best(out):
    return out.argmax(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, 2),
    )  # fmt: skip
    test = DataLoader(TensorDataset(*examples(1024)), batch_size=256)
    benchmark = Benchmark(TorchModel(net), test, [], [best], METRICS)
    print("before:", benchmark.run(quiet=True), flush=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    net.train()
    begun = time.monotonic()
    for step in range(1, PER_SECOND * SECONDS + 1):
        time.sleep(max(0.0, begun + step / PER_SECOND - time.monotonic()))  # as they arrive
        x, y = examples(BATCH)
        loss = nn.functional.cross_entropy(net(x), y)  # feeds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 120 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print("after:", benchmark.run(quiet=True))


if __name__ == "__main__":
    main()
