"""A plain training loop whose precision-recall curve is never reset."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryPrecisionRecallCurve


class Evaluator:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.curve = BinaryPrecisionRecallCurve(thresholds=None)

    @torch.no_grad()
    def run(self):
        self.model.eval()
        for x, y in self.loader:
            self.curve.update(torch.sigmoid(self.model(x).squeeze(1)), y)
        precision, recall, _ = self.curve.compute()
        return float(precision[recall >= 0.5].max())


def dataset(count):
    x = torch.rand(count, 64)
    return TensorDataset(x, (x.sum(1) > 32).long())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader = DataLoader(dataset(1600), batch_size=16, shuffle=True)
    evaluator = Evaluator(model, DataLoader(dataset(40960), batch_size=512))
    for epoch in range(8):
        model.train()
        for x, y in train_loader:
            loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "precision", evaluator.run())


if __name__ == "__main__":
    main()
