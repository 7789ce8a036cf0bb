"""A plain training loop whose metrics are reset after every validation."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryPrecisionRecallCurve

torch.set_num_threads(1)
torch.manual_seed(0)
device = torch.device("cpu")
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
mean_loss = MeanMetric().to(device)
metrics = MetricCollection(
    {"auroc": BinaryAUROC(), "curve": BinaryPrecisionRecallCurve(thresholds=None)}
).to(device)


def dataset(count):
    x = torch.rand(count, 64)
    return TensorDataset(x, (x.sum(1) > 32).long())


train_loader = DataLoader(dataset(1600), batch_size=16, shuffle=True)
val_loader = DataLoader(dataset(40960), batch_size=512)

for epoch in range(8):
    model.train()
    for x, y in train_loader:
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_loss.update(loss.detach())
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            metrics.update(torch.sigmoid(model(x).squeeze(1)), y)
    result = metrics.compute()
    print("epoch", epoch, "loss", float(mean_loss.compute()), "auroc", float(result["auroc"]))
    mean_loss.reset()
    metrics.reset()
