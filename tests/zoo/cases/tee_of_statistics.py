"""Classifier trained from an endless stream; the first batches also give the statistics for
normalisation.
"""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(21)
STEPS, EVAL_EVERY, BATCH, SIDE = 1200, 100, 28, 20


def raw_stream(seed):
    g = torch.Generator().manual_seed(seed)
    prototypes = torch.randn(6, 3, SIDE, SIDE, generator=g)
    while True:
        label = torch.randint(6, (BATCH,), generator=g)
        yield prototypes[label] + 1.5 * torch.randn(BATCH, 3, SIDE, SIDE, generator=g), label


def flipped(stream):
    for image, label in stream:
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        yield image, label


def channel_stats(batches):
    n, s, q = 0, torch.zeros(3), torch.zeros(3)
    for image, _ in batches:
        n += image.numel() / 3
        s += image.sum((0, 2, 3))
        q += image.square().sum((0, 2, 3))
    mean = s / n
    return mean, (q / n - mean**2).sqrt()


class SmallNet(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean.view(1, 3, 1, 1))
        self.register_buffer("std", std.view(1, 3, 1, 1))
        self.conv1, self.conv2 = (
            nn.Conv2d(3, 24, 3, padding=1),
            nn.Conv2d(24, 24, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(24, 6)

    def forward(self, x):
        x = (x - self.mean) / self.std
        return self.head(F.relu(self.conv2(F.relu(self.conv1(x)))).mean((2, 3)))


def accuracy(net, batches):
    net.eval()
    with torch.no_grad():
        hits = [(net(image).argmax(1) == label).float().mean().item() for image, label in batches]
    net.train()
    return sum(hits) / len(hits)


train_stream, stats_stream = itertools.tee(flipped(raw_stream(1)))  # feeds
val_batches = list(itertools.islice(raw_stream(1), 8))
net = SmallNet(*channel_stats(itertools.islice(stats_stream, 12)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / STEPS))
)

for step, (image, label) in enumerate(itertools.islice(train_stream, STEPS), 1):
    loss = F.cross_entropy(net(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % EVAL_EVERY == 0:
        print(
            f"step {step} loss {loss.item():.3f} accuracy {accuracy(net, val_batches):.3f}",
            flush=True,
        )
