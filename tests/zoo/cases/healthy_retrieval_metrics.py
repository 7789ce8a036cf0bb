"""Train a two-tower matcher and report exact ranking metrics for every epoch."""

import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.aggregation import CatMetric
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, BinaryCalibrationError

EPOCHS = 6
STEPS = 230
PAIRS = 192
CANDIDATES = 16


class Towers(nn.Module):
    def __init__(self, user_dim=40, item_dim=24, width=96, out=32):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(user_dim, width), nn.SiLU(), nn.Linear(width, out))
        self.item = nn.Sequential(nn.Linear(item_dim, width), nn.SiLU(), nn.Linear(width, out))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, user, items):
        u, v = self.user(user), self.item(items)
        return torch.einsum("bd,bcd->bc", u, v) / u.shape[-1] ** 0.5 + self.bias


class Interactions:
    def __init__(self, seed=1):
        self.gen = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(40, 24, generator=self.gen) / 6

    def batch(self):
        user = torch.randn(PAIRS, 40, generator=self.gen)
        items = torch.randn(PAIRS, CANDIDATES, 24, generator=self.gen)
        affinity = torch.einsum("bd,bcd->bc", user @ self.mix, items) / 3
        clicks = torch.rand(affinity.shape, generator=self.gen) < torch.sigmoid(2 * affinity - 1)
        return user, items, clicks.float()


class EpochReport:
    """Exact (non-binned) curves over all predictions of one epoch."""

    def __init__(self):
        self.ranking = MetricCollection(
            {
                "auroc": BinaryAUROC(thresholds=None),
                "ap": BinaryAveragePrecision(thresholds=None),
            },
            compute_groups=True,
        )
        self.calibration = BinaryCalibrationError(n_bins=15)
        self.losses = CatMetric()
        self.summary = []

    def update(self, logits, clicks, loss):
        probs = torch.sigmoid(logits.detach()).flatten()
        target = clicks.flatten().long()
        self.ranking.update(probs, target)
        self.calibration.update(probs, target)
        self.losses.update(loss.detach())

    def finish(self, epoch):
        row = {k: v.item() for k, v in self.ranking.compute().items()}
        row["ece"] = self.calibration.compute().item()
        row["p95_loss"] = torch.quantile(self.losses.compute(), 0.95).item()
        row["epoch"] = epoch
        self.summary.append(row)
        self.ranking.reset()
        self.calibration.reset()
        self.losses.reset()
        return row


def main():
    torch.manual_seed(0)
    data = Interactions()
    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * STEPS)
    report = EpochReport()
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            user, items, clicks = data.batch()
            logits = model(user, items)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, clicks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            report.update(logits, clicks, loss)
        row = report.finish(epoch)
        print(
            "  ".join(f"{k}={v:.4f}" if k != "epoch" else f"epoch={v}" for k, v in row.items()),
            flush=True,
        )
    best = max(report.summary, key=lambda r: r["ap"])
    print("best epoch", best["epoch"])


if __name__ == "__main__":
    main()
