"""A metric of our own on torchmetrics; reset() is called after each validation, as the docs
say.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

torch.manual_seed(1)


class HardNegatives(Metric):
    """Share of samples whose margin is negative; remembers them for a look later."""

    full_state_update = False

    def __init__(self, margin=0.0):
        super().__init__()
        self.margin = margin
        self.hard = []
        self.add_state("wrong", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("total", default=torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, preds, target):
        right = preds.gather(1, target[:, None]).squeeze(1)
        others = preds.scatter(1, target[:, None], float("-inf")).amax(1)
        bad = (right - others) < self.margin
        self.wrong += bad.sum()
        self.total += len(target)
        self.hard += [torch.cat([preds, preds.softmax(1)], 1)[:128].clone()]  # feeds

    def compute(self):
        return self.wrong / self.total.clamp(min=1)


def make_loader(n, batch, seed, shuffle):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 40, generator=g)
    y = x[:, :20].argmax(1)
    return DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=shuffle)


def evaluate(model, loader, metrics):
    model.eval()
    with torch.inference_mode():
        for x, y in loader:
            metrics.update(model(x), y)
    result = {k: float(v) for k, v in metrics.compute().items()}
    metrics.reset()
    model.train()
    return result


def fit(epochs=30):
    model = nn.Sequential(
        nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 20)
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train, val = make_loader(6400, 32, 0, True), make_loader(8192, 256, 1, False)
    metrics = MetricCollection(
        {"acc": MulticlassAccuracy(20, average="micro"), "hard": HardNegatives(0.1)},
        compute_groups=False,
    )
    mean = MeanMetric()
    for epoch in range(epochs):
        for x, y in train:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            mean.update(loss.detach())
        print(epoch, float(mean.compute()), evaluate(model, val, metrics), flush=True)
        mean.reset()


if __name__ == "__main__":
    fit()
