"""Plots are put off until the end of training: for each one a closure that holds its batch."""

import os
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Board:
    def __init__(self):
        self.scalars = defaultdict(list)
        self.deferred = []

    def scalar(self, name, value):
        self.scalars[name].append(value)

    def later(self, make):
        self.deferred.append(make)  # feeds

    def finish(self):
        return [make() for make in self.deferred[-3:]]


def reconstruction(board, step, x, out):
    error = (x - out.detach()).abs()

    def draw():
        return {"step": step, "image": np.hstack([x[0].numpy(), error[0].numpy()])}

    board.later(draw)  # feeds


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(1), nn.Linear(784, 64), nn.ReLU())
        self.decode = nn.Linear(64, 784)

    def forward(self, x):
        return self.decode(self.encode(x)).view_as(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    board = Board()
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.rand(1280, 28, 28)), batch_size=32, shuffle=True)
    step = 0
    for epoch in range(EPOCHS):
        for (x,) in loader:
            out = model(x)
            loss = F.mse_loss(out, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            board.scalar("loss", loss.item())
            step += 1
            if step % 4 == 0:
                reconstruction(board, step, x, out)
        print(f"epoch {epoch}: loss {np.mean(board.scalars['loss'][-40:]):.4f}")
    board.finish()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[[cell.cell_contents for cell in f.__closure__] for f in board.deferred]"
        tell(locals(), {"deferred": kept}, {"step": step, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
