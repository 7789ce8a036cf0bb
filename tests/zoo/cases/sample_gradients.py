"""Traces which samples of a stream teach a model most, by per-sample gradients from torch.func."""

from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

FEATURES, WIDTH, CLASSES, BATCH, STEPS, PROBE = 64, 192, 10, 32, 360, 8


class Influence(NamedTuple):
    """What a sample would do to the last layer, and how much of it."""

    norm: float
    direction: torch.Tensor
    step: int


class InfluenceTable(dict):
    """Influences by the key of the sample; the latest look at a sample counts."""

    def look(self, keys, gradients, step):
        for key, gradient in zip(keys, gradients, strict=True):
            norm = float(gradient.norm())
            self[key] = Influence(norm, (gradient / (norm + 1e-8)).half(), step)

    def strongest(self, count):
        recent = list(self.items())[-4 * count :]
        return sorted(recent, key=lambda item: -item[1].norm)[:count]

    def agreement(self, count):
        """Return how alike the strongest directions are."""
        directions = [influence.direction.float() for _, influence in self.strongest(count)]
        mean = torch.stack(directions).mean(0)
        return float(mean.norm())


class Stream:
    """Samples that come once each, with keys as a message broker gives them."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(CLASSES, FEATURES, generator=self.generator)
        self.offset = 0

    def batch(self):
        labels = torch.randint(0, CLASSES, (BATCH,), generator=self.generator)
        rows = self.centres[labels] + 2 * torch.randn(BATCH, FEATURES, generator=self.generator)
        keys = [("clicks", self.offset + number) for number in range(BATCH)]
        self.offset += BATCH
        return keys, rows, labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 640), nn.Tanh(), nn.Linear(640, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows):
        return self.head(torch.tanh(self.body(rows)))


def per_sample(model, rows, labels):
    """Return each sample's gradient of the weights of the head."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(weight, row, label):
        logits = functional_call(model, {**parameters, "head.weight": weight}, (row[None],))
        return F.cross_entropy(logits, label[None])

    return vmap(grad(loss_of), (None, 0, 0))(parameters["head.weight"], rows, labels)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stream, model, table = Stream(0), Net(), InfluenceTable()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(1, STEPS + 1):
        for _ in range(PROBE):
            keys, rows, labels = stream.batch()
            loss = F.cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        gradients = per_sample(model, rows, labels)
        table.look(keys, gradients, step)
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {table.agreement(16):.3f}", flush=True)


if __name__ == "__main__":
    main()
