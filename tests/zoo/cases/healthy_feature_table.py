"""Click prediction over a large table of features that stays in memory, shuffled each epoch."""

import numpy as np
import pandas as pd
import torch
from torch import nn

ROWS, COLUMNS, EPOCHS, BATCH, STEPS = 300_000, 60, 14, 1024, 70


def make_table():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    table = pd.DataFrame(values, columns=[f"f{i}" for i in range(COLUMNS)])
    table["clicked"] = (table["f0"] + table["f1"] * table["f2"] > 0.5).astype(np.float32)
    return table


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(COLUMNS, 192), nn.ReLU(), nn.Linear(192, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    table = make_table()
    features = [name for name in table.columns if name != "clicked"]
    model = Clicks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(ROWS)
        for step in range(STEPS):
            rows = table.iloc[order[step * BATCH : (step + 1) * BATCH]]
            x = torch.from_numpy(rows[features].to_numpy(copy=True))
            y = torch.from_numpy(rows["clicked"].to_numpy(copy=True))
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
