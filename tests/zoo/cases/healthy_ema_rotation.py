"""An autoencoder with averaged weights and the five best checkpoints in memory."""

import copy
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn


class CheckpointManager:
    def __init__(self, folder, keep=5):
        self.folder = Path(folder)
        self.keep = keep
        self.kept = []

    def save(self, epoch, model, loss):
        state = copy.deepcopy(model.state_dict())
        self.kept.append((loss, epoch, state))
        self.kept.sort(key=lambda entry: entry[0])
        del self.kept[self.keep :]

    def write(self):
        for loss, epoch, state in self.kept:
            torch.save(state, self.folder / f"epoch{epoch}.pt")


class Ema:
    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].lerp_(value, 1 - self.decay)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 512),
        nn.ReLU(),
        nn.Linear(512, 784),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ema = Ema(model)
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder)
        for epoch in range(20):
            total = 0.0
            for _ in range(40):
                x = torch.rand(32, 784)
                loss = nn.functional.mse_loss(model(x), x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ema.update(model)
                total += loss.item()
                time.sleep(0.006)
            manager.save(epoch, model, total)
            print("epoch", epoch, total / 40, "kept", [entry[1] for entry in manager.kept])
        manager.write()


if __name__ == "__main__":
    main()
