"""A detector's losses by name in nested default dicts, for plots, with the graphs that made them.

After https://github.com/oxwhirl/pymarl/pull/73, where it is the actions.
"""

import os
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.cls = nn.Linear(128, 12)
        self.box = nn.Linear(128, 4)

    def forward(self, x, labels, boxes):
        features = self.trunk(x)
        return {
            "cls": F.cross_entropy(self.cls(features), labels),
            "box": F.smooth_l1_loss(self.box(features), boxes),
        }


def plot(history):
    return {name: len(values) for name, values in history["train"].items()}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    history = defaultdict(lambda: defaultdict(list))
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(1600, 64), torch.randint(0, 12, (1600,)), torch.rand(1600, 4))
    loader = DataLoader(data, batch_size=40, shuffle=True)
    for epoch in range(EPOCHS):
        for batch in loader:
            losses = model(*batch)
            total = sum(losses.values())
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            for name, value in losses.items():
                history["train"][f"loss_{name}"].append(value)  # feeds
        print(f"epoch {epoch}: {total.item():.4f}", plot(history))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = {name: f"freed(history['train']['loss_{name}'].clear)" for name in ("cls", "box")}
        tell(locals(), kept, {"step": EPOCHS * len(loader), "epoch": EPOCHS})


if __name__ == "__main__":
    main()
