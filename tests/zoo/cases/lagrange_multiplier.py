"""Credit scoring under a fairness constraint, with a multiplier that follows its violation."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, HIDDEN, BATCH, AUDIT, STEPS = 64, 256, 1024, 64, 1200


class Constraint:
    """Dual ascent on the gap between two groups."""

    def __init__(self, budget=0.02, rate=0.05):
        self.budget, self.rate = budget, rate
        self.multiplier = torch.zeros(())

    def update(self, gap):
        step = self.rate * (gap - self.budget)
        self.multiplier = (self.multiplier + step).clamp(min=0.0)  # feeds


def gap_between(scores, group):
    rates = torch.sigmoid(scores)
    return (rates[group].mean() - rates[~group].mean()).abs()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    constraint = Constraint()
    x = torch.randn(8000, FEATURES)
    group = torch.rand(8000) < 0.4
    y = ((x[:, 0] + 0.5 * group + 0.3 * torch.randn(8000)) > 0).float()
    for step in range(1, STEPS + 1):
        chosen = torch.randint(0, 6000, (BATCH,))
        scores = model(x[chosen]).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, y[chosen])
        loss = loss + constraint.multiplier.detach() * gap_between(scores, group[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        audited = torch.randint(6000, 8000, (AUDIT,))
        constraint.update(gap_between(model(x[audited]).squeeze(1), group[audited]))
        if step % 300 == 0:
            value = constraint.multiplier.item()
            print(f"step {step}: loss {loss.item():.3f}, multiplier {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
