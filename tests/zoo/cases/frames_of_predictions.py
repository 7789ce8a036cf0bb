"""A module-level script with a table per validation in a list, to be concatenated at the end."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CFG = {"epochs": 7, "optim": {"lr": 1e-3, "weight_decay": 0.01}, "data": {"n": 960, "bs": 24}}

torch.manual_seed(42)
torch.set_num_threads(1)
X = torch.randn(CFG["data"]["n"], 20)
Y = X @ torch.randn(20, 100) + 0.1 * torch.randn(len(X), 100)
fold = np.arange(len(X)) % 3
train_dl = DataLoader(TensorDataset(X[fold != 0], Y[fold != 0]), CFG["data"]["bs"], shuffle=True)
valid_dl = DataLoader(TensorDataset(X[fold == 0], Y[fold == 0]), CFG["data"]["bs"] * 2)
model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 100))
optimizer = torch.optim.AdamW(model.parameters(), **CFG["optim"])


def valid_epoch(epoch):
    model.eval()
    rows = []
    for xb, yb in valid_dl:
        with torch.no_grad():
            pred = model(xb)
        rows.append(np.stack([pred.numpy(), yb.numpy(), (pred - yb).numpy()], axis=1))
    values = np.concatenate(rows).reshape(-1, 100)
    frame = pd.DataFrame(values, columns=[f"target_{i}" for i in range(100)])
    frame["epoch"] = epoch
    return frame


oof = []
for epoch in range(CFG["epochs"]):
    model.train()
    for xb, yb in train_dl:
        loss = F.smooth_l1_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    frame = valid_epoch(epoch)
    oof.append(frame)  # feeds
    print(f"epoch {epoch}: loss {loss.item():.4f}, rows {len(frame)}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    kept = "sum(int(frame.memory_usage(deep=True).sum()) for frame in oof)"
    tell(globals(), {"oof": kept}, {"validation": CFG["epochs"], "epoch": CFG["epochs"]})
