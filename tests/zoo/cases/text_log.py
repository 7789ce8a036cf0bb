"""Twenty kilobytes of text about every step, kept in a list for a report at the end."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Console:
    __slots__ = ("_lines", "verbose")

    def __init__(self, verbose=False):
        self._lines = []
        self.verbose = verbose

    def log(self, step, logits):
        line = f"step {step}: " + " ".join(f"{value:.6f}" for value in logits.flatten().tolist())
        self._lines.append(line)  # feeds
        if self.verbose:
            print(line)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    console = Console()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    data = TensorDataset(torch.rand(1600, 64), torch.randint(0, 64, (1600,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            console.log(step, logits.detach())
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"_lines": "console._lines"}, {"step": step, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
