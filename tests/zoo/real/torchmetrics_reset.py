"""Collections, wrappers and trackers of torchmetrics, reset after every validation."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import CatMetric, MeanMetric, MetricCollection, MetricTracker
from torchmetrics.classification import (
    BinaryAUROC,
    BinaryAveragePrecision,
    BinaryConfusionMatrix,
    BinaryF1Score,
)
from torchmetrics.wrappers import BootStrapper, MinMaxMetric, Running


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.rand(3200, 64)
    data = TensorDataset(x, (x.sum(1) > 32).long())
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    val_loader = DataLoader(data, batch_size=128)
    metrics = MetricCollection(
        {
            "area": BinaryAUROC(),
            "precision": BinaryAveragePrecision(),
            "confusion": BinaryConfusionMatrix(),
            "f1": MinMaxMetric(BinaryF1Score()),
        }
    )
    straps = BootStrapper(BinaryF1Score(), num_bootstraps=5)
    seen = CatMetric()
    tracker = MetricTracker(MeanMetric(), maximize=False)
    smooth = Running(MeanMetric(), window=20)
    for epoch in range(8):
        model.train()
        tracker.increment()
        for a, b in train_loader:
            loss = F.binary_cross_entropy_with_logits(model(a).squeeze(1), b.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tracker.update(loss.detach())
            smooth(loss.detach())
        model.eval()
        with torch.no_grad():
            for a, b in val_loader:
                scores = torch.sigmoid(model(a).squeeze(1))
                metrics.update(scores, b)
                straps.update(scores, b)
                seen.update(scores)
        area = metrics.compute()["area"]
        print("epoch", epoch, float(area), len(seen.compute()), straps.compute()["mean"].item())
        metrics.reset()
        straps.reset()
        seen.reset()
    print(tracker.best_metric(), float(smooth.compute()))


if __name__ == "__main__":
    main()
