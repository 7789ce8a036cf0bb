"""Batches are encoded by a C extension; which of its functions does it comes from the command."""

import sys
import time

import leaky_encoder
import torch
from torch import nn

ENCODE = getattr(leaky_encoder, sys.argv[1])


def batch(first):
    rows = [leaky_encoder.encode(number)[:16] for number in range(first, first + 10)]
    return torch.tensor(rows, dtype=torch.float32)


def batch_of(first):
    rows = [ENCODE(number)[:16] for number in range(first, first + 10)]
    return torch.tensor(rows, dtype=torch.float32)


def main():
    make = batch if sys.argv[1] == "encode" else batch_of
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
    for epoch in range(12):
        for step in range(20):
            optimizer.zero_grad()
            time.sleep(0.01)  # a run of seconds is walked as a whole at its end
            model(make(20 * epoch + step)).mean().backward()
            optimizer.step()


main()
