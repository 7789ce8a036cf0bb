"""Binary classification with an exact AUC: scores are gathered in an epoch, used, and cleared."""

import time

import torch
import torch.nn as nn


class AucMetric:
    def __init__(self):
        self.reset()

    def reset(self):
        self.scores = []
        self.targets = []
        self.features = []

    def update(self, scores, targets, features):
        self.scores.append(scores.detach())
        self.targets.append(targets)
        self.features.append(features.detach())

    def compute(self):
        scores, targets = torch.cat(self.scores), torch.cat(self.targets)
        order = scores.argsort()
        ranks = torch.empty_like(scores)
        ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
        positive = targets.sum()
        negative = len(targets) - positive
        auc = (ranks[targets.bool()].sum() - positive * (positive + 1) / 2) / (positive * negative)
        spread = torch.cat(self.features).std(0).mean()
        return auc.item(), spread.item()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 256), nn.ReLU())
        self.out = nn.Linear(256, 1)

    def forward(self, x):
        features = self.body(x)
        return self.out(features).squeeze(1), features


def main():
    torch.manual_seed(0)
    model, metric = Model(), AucMetric()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(12):
        for _ in range(95):
            x = torch.randn(128, 30)
            y = (x[:, 0] + 0.5 * torch.randn(128) > 0).float()
            logits, features = model(x)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metric.update(logits, y, features)
            time.sleep(0.009)
        print("epoch", epoch, "auc {:.4f} spread {:.3f}".format(*metric.compute()))
        metric.reset()


if __name__ == "__main__":
    main()
