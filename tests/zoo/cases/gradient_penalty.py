"""A classifier on a frozen stem that is kept flat by a penalty on the gradients of its head."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, CLASSES, BATCH, STEPS = 48, 128, 6, 96, 500


class Stem(nn.Module):
    """Stands for a pretrained body; it isn't given to the optimizer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 1024),
            nn.Tanh(),
            nn.Linear(1024, 1024),
            nn.Tanh(),
            nn.Linear(1024, WIDTH),
        ).requires_grad_(False)

    def forward(self, rows):
        return self.body(rows) * self.scale


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, features):
        return self.out(F.softplus(self.hidden(self.norm(features))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Stem()
        self.head = Head()

    def forward(self, rows):
        return self.head(self.stem(rows))


class FlatMinimum:
    """Trains the head where the loss is flat: its gradient's norm is part of the loss."""

    def __init__(self, model, weight=0.05, lr=0.05):
        self.model = model
        self.weight = weight
        self.optimizer = torch.optim.SGD(model.head.parameters(), lr=lr, momentum=0.9)

    def step(self, rows, labels):
        loss = F.cross_entropy(self.model(rows), labels)
        self.optimizer.zero_grad()
        loss.backward(create_graph=True)
        norm = sum(p.grad.square().sum() for p in self.model.head.parameters())
        (self.weight * norm).backward()
        nn.utils.clip_grad_norm_(self.model.head.parameters(), 5.0)
        self.optimizer.step()
        return loss.item(), norm.item()


class Blobs:
    """Classes in overlapping clouds that drift slowly."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(CLASSES, FEATURES, generator=self.generator)

    def batch(self):
        drift = torch.randn(CLASSES, FEATURES, generator=self.generator)
        self.centres = 0.999 * self.centres + 0.02 * drift
        labels = torch.randint(0, CLASSES, (BATCH,), generator=self.generator)
        noise = torch.randn(BATCH, FEATURES, generator=self.generator)
        return self.centres[labels] + 2 * noise, labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    blobs = Blobs(4)
    trainer = FlatMinimum(Classifier())
    for step in range(1, STEPS + 1):
        loss, norm = trainer.step(*blobs.batch())
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}, gradient {norm:.4f}", flush=True)


if __name__ == "__main__":
    main()
