"""Keeps every output in two places: emptying one of them frees nothing."""

from __future__ import annotations

import torch
from torch import nn


class Logger:
    def __init__(self) -> None:
        self.records: list[tuple[int, torch.Tensor]] = []

    def log(self, step: int, output: torch.Tensor) -> None:
        self.records.append((step, output))


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(512, 512)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.outputs: list[torch.Tensor] = []
        self.logger = Logger()

    def step(self, number: int, batch: torch.Tensor) -> None:
        output = self.model(batch)
        self.optimizer.zero_grad()
        output.square().mean().backward()
        self.optimizer.step()
        kept = output.detach()
        self.outputs.append(kept)
        self.logger.log(number, kept)


def main() -> None:
    torch.manual_seed(0)
    trainer = Trainer()
    for _ in range(4):
        for number in range(40):
            trainer.step(number, torch.rand(32, 512))


if __name__ == "__main__":
    main()
