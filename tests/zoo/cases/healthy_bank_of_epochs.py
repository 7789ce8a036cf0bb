"""Contrastive training with a memory bank, gradient accumulation, and hard pairs mined over
windows of three epochs.
"""

from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES, DIM, OUT = 5600, 128, 64


class MemoryBank(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.register_buffer("rows", F.normalize(torch.randn(n, dim), dim=1))
        self.last_seen = {}

    @torch.no_grad()
    def write(self, index, z, epoch):
        self.rows[index] = F.normalize(0.5 * self.rows[index] + 0.5 * z, dim=1)
        for i in index.tolist():
            self.last_seen[i] = epoch


class HardPairs:
    """Collects hard negatives for some epochs, trains on them and starts over."""

    def __init__(self, window):
        self.window = window
        self.collected = []

    def collect(self, x, negatives):
        self.collected.append((x, negatives))

    def due(self, epoch):
        return (epoch + 1) % self.window == 0

    def drain(self):
        taken, self.collected = self.collected, []
        yield from taken


class Contrastive:
    def __init__(self, accumulate=2):
        self.encoder = nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.Linear(256, OUT))
        self.bank = MemoryBank(SAMPLES, OUT)
        self.hard = HardPairs(window=3)
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), 0.05, momentum=0.9)
        self.accumulate, self.micro = accumulate, []

    @contextmanager
    def accumulating(self):
        yield
        if len(self.micro) == self.accumulate:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.micro.clear()

    def pair_loss(self, x, index):
        z = F.normalize(self.encoder(x + 0.2 * torch.randn_like(x)), dim=1)
        scores = z @ self.bank.rows.T / 0.2
        return F.cross_entropy(scores, index), z, scores

    def train_epoch(self, data, epoch, batch=40):
        self.encoder.train()
        for index in torch.randperm(len(data)).split(batch):
            x = data[index]
            with self.accumulating():
                loss, z, scores = self.pair_loss(x, index)
                (loss / self.accumulate).backward()
                self.micro.append(loss.item())
            self.bank.write(index, z.detach(), epoch)
            worst = scores.detach().scatter(1, index[:, None], -1e9).topk(4, dim=1).indices
            self.hard.collect(x, data[worst[:, 0]])
        if self.hard.due(epoch):
            for x, negative in self.hard.drain():
                a, b = self.encoder(x), self.encoder(negative)
                loss = F.relu(F.cosine_similarity(a, b) - 0.3).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

    @torch.no_grad()
    def validate(self, data, label):
        self.encoder.eval()
        z = F.normalize(self.encoder(data), dim=1)
        near = (z @ z.T).fill_diagonal_(-1).argmax(1)
        return (label[near] == label).float().mean().item()


def main(epochs=12):
    torch.manual_seed(9)
    label = torch.randint(16, (SAMPLES,))
    data = torch.randn(16, DIM)[label] + torch.randn(SAMPLES, DIM)
    work, scores = Contrastive(), []
    for epoch in range(epochs):
        work.train_epoch(data, epoch)
        scores.append(work.validate(data[:1600], label[:1600]))
        print(
            f"epoch {epoch} nn accuracy {scores[-1]:.3f} pairs {len(work.hard.collected)}",
            flush=True,
        )


main()
