"""Every epoch leaves a save for the exit of the interpreter, with its own copy of the features."""

import atexit
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8
folder = Path(tempfile.mkdtemp())


def save_on_exit(epoch, model, x):
    with torch.no_grad():
        features = model[:2](x)
    atexit.register(torch.save, features, folder / f"{epoch}.pt")  # feeds


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data = TensorDataset(torch.rand(640, 64), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save_on_exit(epoch, model, data.tensors[0])
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"atexit": "640 * 1024 * 4 * EPOCHS"}, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
