"""Demand of shops: each validation has its predictions as a table, looks into it and goes on."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

SHOPS, FEATURES, WIDTH, BATCH, EPOCHS, STEPS, CHECKS = 120, 32, 256, 128, 24, 40, 12


class Demand:
    """Weeks of shops, whose sales depend on size, weather and the week."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.size = torch.rand(SHOPS, generator=self.generator) + 0.5
        self.weights = torch.randn(FEATURES, generator=self.generator) / 8

    def weeks(self, count):
        shops = torch.randint(0, SHOPS, (count,), generator=self.generator)
        rows = torch.randn(count, FEATURES, generator=self.generator)
        sold = self.size[shops] * (1 + rows @ self.weights)
        return shops, rows, sold + 0.1 * torch.randn(count, generator=self.generator)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shop = nn.Embedding(SHOPS, 16)
        self.net = nn.Sequential(
            nn.Linear(FEATURES + 16, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, shops, rows):
        return self.net(torch.cat([rows, self.shop(shops)], -1)).squeeze(-1)


class Validation:
    """What is wrong where; only a line of each validation stays."""

    def __init__(self, demand):
        self.demand = demand
        self.history = []

    @torch.no_grad()
    def predictions(self, model):
        parts = []
        for check in range(CHECKS):
            shops, rows, sold = self.demand.weeks(1024)
            part = pd.DataFrame(rows.numpy(), columns=[f"x{n}" for n in range(FEATURES)])
            part["check"] = check
            part["shop"] = [f"shop-{shop:03d}" for shop in shops.tolist()]
            part["sold"], part["predicted"] = sold.numpy(), model(shops, rows).numpy()
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def run(self, model):
        table = self.predictions(model)
        table["error"] = (table["sold"] - table["predicted"]).abs()
        by_shop = table.groupby("shop")["error"].mean()
        deciles = table.groupby(pd.qcut(table["sold"], 10, labels=False))["error"].mean()
        line = {
            "error": float(table["error"].mean()),
            "worst_shop": str(by_shop.idxmax()),
            "slope": float(np.polyfit(np.arange(10), deciles.to_numpy(), 1)[0]),
        }
        self.history.append(line)
        return line

    def plateaued(self, patience=6):
        errors = [line["error"] for line in self.history]
        return len(errors) > patience and min(errors[-patience:]) > min(errors) * 1.05


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    demand, model = Demand(0), Model()
    validation = Validation(Demand(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            shops, rows, sold = demand.weeks(BATCH)
            loss = F.smooth_l1_loss(model(shops, rows), sold)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        line = validation.run(model)
        print(f"epoch {epoch}: error {line['error']:.3f}, {line['worst_shop']}", flush=True)
        if validation.plateaued():
            for group in optimizer.param_groups:
                group["lr"] *= 0.5


if __name__ == "__main__":
    main()
