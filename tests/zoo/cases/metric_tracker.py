"""A MetricTracker that keeps the whole state of the metric for every epoch.

After https://github.com/Lightning-AI/torchmetrics/issues/2492.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricTracker
from torchmetrics.classification import MulticlassAUROC

EPOCHS = 7


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 50))
    data = TensorDataset(torch.rand(4000, 32), torch.randint(0, 50, (4000,)))
    train_loader = DataLoader(data, batch_size=80, shuffle=True)
    val_loader = DataLoader(data, batch_size=200)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tracker = MetricTracker(MulticlassAUROC(50, thresholds=None))
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tracker.increment()  # feeds
        model.eval()
        with torch.no_grad():
            for x, y in val_loader:
                tracker.update(model(x).softmax(1), y)  # feeds
        print(f"epoch {epoch}: area {tracker.compute():.4f}")
    print(f"best {tracker.best_metric():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[m.metric_state for m in tracker]"
        tell(locals(), {"tracker": kept}, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
