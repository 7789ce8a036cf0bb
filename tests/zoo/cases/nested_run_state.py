"""A module-level script whose run state, a dataclass of dicts, keeps the logits of validation."""

import os
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class RunConfig:
    epochs: int = 8
    batch_size: int = 16
    lr: float = 1e-3
    hidden: int = 256


@dataclass
class RunState:
    config: RunConfig
    best: float = float("inf")
    outputs: dict = field(default_factory=lambda: {"train": {}, "val": {"loss": [], "logits": []}})


torch.manual_seed(0)
torch.set_num_threads(1)
state = RunState(RunConfig())
config = state.config
model = nn.Sequential(nn.Linear(64, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1000))
optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
data = TensorDataset(torch.rand(640, 64), torch.randint(0, 1000, (640,)))
train_loader = DataLoader(data, batch_size=config.batch_size, shuffle=True)
val_loader = DataLoader(TensorDataset(*data[:320]), batch_size=32)

for epoch in range(config.epochs):
    model.train()
    for x, y in train_loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            logits = model(x)
            state.outputs["val"]["loss"].append(F.cross_entropy(logits, y).item())
            state.outputs["val"]["logits"].append(logits)  # feeds
    mean = sum(state.outputs["val"]["loss"][-len(val_loader) :]) / len(val_loader)
    state.best = min(state.best, mean)
    print(f"epoch {epoch}: loss {mean:.3f}, best {state.best:.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    tell(
        globals(),
        {"logits": "state.outputs['val']['logits']"},
        {"validation": config.epochs, "epoch": config.epochs},
    )
