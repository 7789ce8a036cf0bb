"""Logging to a file and through a buffer that is flushed every fifty records."""

import logging
import logging.handlers
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8
log = logging.getLogger("run")


def configure(folder):
    log.setLevel(logging.DEBUG)
    log.propagate = False
    to_file = logging.handlers.RotatingFileHandler(folder / "run.log", maxBytes=100_000)
    log.addHandler(logging.handlers.MemoryHandler(50, target=to_file))


def main(folder):
    configure(folder)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    data = TensorDataset(torch.rand(960, 64), torch.randint(0, 10, (960,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        for step, (x, y) in enumerate(DataLoader(data, batch_size=24, shuffle=True)):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.debug("step %d: loss %.4f, logits %s", step, loss.item(), logits.detach())
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
        logging.shutdown()
