"""The loop that `overhead.py` times: a medium convolutional step, validation after every epoch."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def make_model(width: int = 48) -> nn.Module:
    def block(inner: int, outer: int, stride: int) -> nn.Module:
        convolution = nn.Conv2d(inner, outer, 3, stride=stride, padding=1)
        return nn.Sequential(convolution, nn.BatchNorm2d(outer), nn.ReLU())

    return nn.Sequential(
        block(3, width, 1),
        block(width, width, 2),
        block(width, 2 * width, 2),
        block(2 * width, 2 * width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def make_loader(batches: int, seed: int) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batches * 16, 3, 32, 32, generator=generator)
    labels = torch.randint(0, 10, (batches * 16,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    training, validation = make_loader(options.steps, 1), make_loader(20, 2)
    history: list[float] = []
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for _ in range(options.epochs):
        model.train()
        for images, labels in training:
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in validation:
                correct += int((model(images).argmax(dim=1) == labels).sum())
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    print(f"loop_seconds={seconds:.4f} loop_cpu_seconds={cpu_seconds:.4f}", end=" ")
    print(f"last_loss={history[-1]:.6f}")


if __name__ == "__main__":
    main()
