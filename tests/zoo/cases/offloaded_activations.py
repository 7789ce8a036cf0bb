"""A tabular net that keeps its wide activations in half precision until the backward pass."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

COLUMNS, WIDE, CLASSES, BATCH, EPOCHS, STEPS, CHECKS = 96, 1536, 12, 128, 20, 24, 4


class Offload(torch.autograd.Function):
    """A linear layer whose input waits for the backward pass in half precision."""

    stash = {}
    tickets = itertools.count()

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.ticket = next(Offload.tickets)
        ctx.save_for_backward(weight)
        if any(ctx.needs_input_grad):
            Offload.stash[ctx.ticket] = x.half()
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        x = Offload.stash.pop(ctx.ticket).float()
        return grad @ weight, grad.t() @ x, grad.sum(0)


class OffloadedLinear(nn.Linear):
    def forward(self, x):
        return Offload.apply(x, self.weight, self.bias)


class TabularNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(COLUMNS, WIDE),
            nn.BatchNorm1d(WIDE),
            nn.ReLU(),
            nn.Dropout(0.1),
            OffloadedLinear(WIDE, 256),
            nn.ReLU(),
            nn.Linear(256, CLASSES),
        )

    def forward(self, rows):
        return self.net(rows)


class Forest:
    """Rows whose label is the leaf of a small random tree."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.planes = torch.randn(COLUMNS, CLASSES, generator=self.generator)

    def rows(self, count):
        x = torch.randn(count, COLUMNS, generator=self.generator)
        scores = x @ self.planes + torch.randn(count, CLASSES, generator=self.generator)
        return x, scores.argmax(-1)


def validate(model, forest):
    model.eval()
    right = 0
    for _ in range(CHECKS):
        rows, labels = forest.rows(BATCH)
        right += int((model(rows).argmax(-1) == labels).sum())
    model.train()
    return right / (CHECKS * BATCH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, forest = TabularNet(), Forest(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            rows, labels = forest.rows(BATCH)
            loss = F.cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        accuracy = validate(model, forest)
        print(f"epoch {epoch}: loss {total / STEPS:.3f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
