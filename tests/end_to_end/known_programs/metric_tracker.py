"""A MetricTracker of curves: a copy of the metric for each epoch, with all its predictions."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC
from torchmetrics.wrappers import MetricTracker

EPOCHS = 10


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = TensorDataset(torch.rand(640, 32), torch.randint(0, 2, (640,)))
    held = TensorDataset(torch.rand(24000, 32), torch.randint(0, 2, (24000,)))
    tracker = MetricTracker(BinaryAUROC(thresholds=None))
    for epoch in range(EPOCHS):
        model.train()
        for x, y in DataLoader(train, batch_size=32):
            loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        tracker.increment()
        with torch.no_grad():
            for x, y in DataLoader(held, batch_size=2400):
                tracker.update(model(x)[:, 0].sigmoid(), y)
        print("epoch", epoch, "auroc", float(tracker.compute()))


if __name__ == "__main__":
    main()
