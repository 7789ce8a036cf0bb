"""Temporal link prediction on a stream of interactions: a memory per node and a small graph layer."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

NODES, FEATURES, DIM, CHUNK = 1500, 48, 96, 200


class Events(NamedTuple):
    source: torch.Tensor
    target: torch.Tensor
    time: torch.Tensor
    message: torch.Tensor


def interactions(steps: int, seed: int) -> Iterator[Events]:
    """Who talks to whom follows groups that change slowly; the message tells about the sender."""
    g = torch.Generator().manual_seed(seed)
    group = torch.randint(30, (NODES,), generator=g)
    voice = torch.randn(30, FEATURES, generator=g)
    now = 0.0
    for _ in range(steps):
        movers = torch.randint(NODES, (3,), generator=g)
        group[movers] = torch.randint(30, (3,), generator=g)
        source = torch.randint(NODES, (CHUNK,), generator=g)
        candidates = torch.randint(NODES, (CHUNK, 60), generator=g)
        same = group[candidates] == group[source][:, None]
        target = candidates.gather(1, same.float().argmax(1, keepdim=True)).squeeze(1)
        time = now + torch.rand(CHUNK, generator=g).sort().values
        now += 1.0
        message = 3.0 + 2.5 * (
            voice[group[source]] + 0.5 * torch.randn(CHUNK, FEATURES, generator=g)
        )
        yield Events(source, target, time, message)  # feeds


class Standardise:
    """Mean and deviation of the messages, from the first part of a stream."""

    def __init__(self, stream: Iterator[Events], first: int = 40):
        self.look, self.stream = itertools.tee(stream)
        messages = torch.cat([e.message for e in itertools.islice(self.look, first)])
        self.mean, self.deviation = messages.mean(0), messages.std(0)

    def __iter__(self):
        for e in self.stream:  # feeds
            yield e._replace(message=(e.message - self.mean) / self.deviation)


class TemporalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.zeros(NODES, DIM))
        self.register_buffer("seen", torch.zeros(NODES))
        self.update = nn.GRUCell(DIM + FEATURES, DIM)
        self.rhythm = nn.Linear(1, 16)
        self.own = nn.Embedding(NODES, 32)
        self.embed = nn.Sequential(nn.Linear(DIM + 32 + 16, 192), nn.ReLU(), nn.Linear(192, DIM))
        self.score = nn.Sequential(nn.Linear(2 * DIM, 128), nn.ReLU(), nn.Linear(128, 1))

    def represent(self, nodes, now):
        gap = (now - self.seen[nodes])[:, None]
        parts = [self.memory[nodes], self.own(nodes), torch.cos(self.rhythm(gap.log1p()))]
        return self.embed(torch.cat(parts, dim=1))

    def forward(self, e: Events, negative):
        now = e.time[0]
        s, t, n = (self.represent(nodes, now) for nodes in (e.source, e.target, negative))
        return self.score(torch.cat([s, t], 1)).squeeze(1), self.score(
            torch.cat([s, n], 1)
        ).squeeze(1)

    def remember(self, e: Events):
        """New memories take the last event's message; they carry the gradient of this step only."""
        peer = self.represent(e.target, e.time[0])
        return self.update(torch.cat([peer, e.message], 1), self.memory[e.source])

    @torch.no_grad()
    def store(self, e: Events, fresh):
        self.memory[e.source] = fresh.detach()
        self.seen[e.source] = e.time


def train(steps: int = 1500):
    torch.manual_seed(0)
    model = TemporalNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stream = Standardise(interactions(steps, seed=6))
    loss_mean, hits, done = 0.7, 0.5, 0
    for e in stream:
        negative = torch.randint(NODES, (CHUNK,))
        good, bad = model(e, negative)
        fresh = model.remember(e)
        loss = F.softplus(-good).mean() + F.softplus(bad).mean() + 1e-3 * fresh.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.store(e, fresh)
        loss_mean += 0.02 * (loss.item() - loss_mean)
        hits += 0.02 * ((good > bad).float().mean().item() - hits)
        done += 1
        if done % 100 == 0:
            print(f"step {done}: loss {loss_mean:.4f}, ranked right {hits:.3f}", flush=True)
    return stream, done


stream, steps = train()
