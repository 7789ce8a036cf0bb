"""Masked token model with a curriculum: longer sequences every epoch until the sixth; batches
are bucketed by length.
"""

import math
import random
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, PAD, MASK = 400, 0, 1


@dataclass
class Curriculum:
    shortest: int = 16
    longest: int = 112
    epochs_to_grow: int = 5

    def max_length(self, epoch):
        part = min(1.0, epoch / self.epochs_to_grow)
        return int(self.shortest + part * (self.longest - self.shortest))


class Bucketer:
    """Collects samples of like length and hands out full batches."""

    def __init__(self, batch_tokens, width=16):
        self.batch_tokens, self.width = batch_tokens, width
        self.pending = defaultdict(list)

    def __call__(self, samples):
        for tokens in samples:
            slot = math.ceil(len(tokens) / self.width)
            self.pending[slot].append(tokens)
            if len(self.pending[slot]) * slot * self.width >= self.batch_tokens:
                yield self.collate(self.pending.pop(slot), slot * self.width)

    @staticmethod
    def collate(rows, length):
        out = torch.full((len(rows), length), PAD)
        for i, row in enumerate(rows):
            out[i, : len(row)] = row
        return out


def samples(n, longest, rng):
    for _ in range(n):
        length = rng.randint(8, longest)
        start = rng.randrange(2, VOCAB)
        yield (torch.arange(length) * rng.choice((1, 3)) + start) % (VOCAB - 2) + 2


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.pos = nn.Embedding(128, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, x):
        h = self.embed(x) + self.pos(torch.arange(x.size(1)))
        return self.out(self.layers(h, src_key_padding_mask=x == PAD))


def masked(batch):
    hide = (torch.rand(batch.shape) < 0.2) & (batch != PAD)
    hide[:, 0] = True
    return batch.masked_fill(hide, MASK), hide


def loss_on(model, batch):
    corrupted, hide = masked(batch)
    return F.cross_entropy(model(corrupted)[hide], batch[hide])


class LanguageTask:
    def __init__(self, epochs=11, per_epoch=1100):
        self.epochs, self.per_epoch = epochs, per_epoch
        self.rng = random.Random(17)
        self.curriculum = Curriculum()
        self.bucketer = Bucketer(batch_tokens=1536)
        self.model = Encoder()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.losses = []

    def train(self, epoch):
        self.model.train()
        for batch in self.bucketer(
            samples(self.per_epoch, self.curriculum.max_length(epoch), self.rng)
        ):
            loss = loss_on(self.model, batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        batches = Bucketer(batch_tokens=2048)(
            samples(300, self.curriculum.longest, random.Random(3))
        )
        values = [loss_on(self.model, b).item() for b in batches]
        return sum(values) / len(values)


if __name__ == "__main__":
    torch.manual_seed(17)
    task = LanguageTask()
    for epoch in range(task.epochs):
        task.train(epoch)
        print(
            f"epoch {epoch} length {task.curriculum.max_length(epoch)} val {task.validate():.3f}",
            flush=True,
        )
