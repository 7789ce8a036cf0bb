"""Federated averaging with compressed updates; clients of a round keep scratch space on disk."""

import copy
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Settings:
    clients: int = 60
    per_round: int = 5
    rounds: int = 44
    local_steps: int = 28
    batch: int = 128
    keep: float = 0.1
    lr: float = 0.05


class Shards:
    """Every client sees few of the classes."""

    def __init__(self, clients: int, features: int = 96, classes: int = 20):
        self.features, self.classes = features, classes
        self.centres = torch.randn(classes, features)
        self.mix = torch.distributions.Dirichlet(torch.full((classes,), 0.3)).sample((clients,))

    def draw(self, client: int, n: int):
        y = torch.multinomial(self.mix[client], n, replacement=True)
        return self.centres[y] + 1.5 * torch.randn(n, self.features), y

    def test(self, n: int = 1000):
        y = torch.randint(self.classes, (n,))
        return self.centres[y] + 1.5 * torch.randn(n, self.features), y


def build(features: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 192), nn.ReLU(), nn.Linear(192, classes)
    )


class Client:
    """Trains a copy of the server's model and sends back the largest entries of the change."""

    def __init__(self, number: int, model: nn.Module, settings: Settings):
        self.number = number
        self.settings = settings
        self.model = copy.deepcopy(model)
        self.residual = [torch.zeros_like(p) for p in self.model.parameters()]
        self.scratch = tempfile.mkdtemp(prefix=f"client{number}-")
        weakref.finalize(self, self.close)  # feeds

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def train(self, shards: Shards) -> float:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.settings.lr, momentum=0.9)
        total = 0.0
        for _ in range(self.settings.local_steps):
            x, y = shards.draw(self.number, self.settings.batch)
            loss = F.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / self.settings.local_steps

    @torch.no_grad()
    def update(self, start: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
        packed = []
        for old, new, rest in zip(start.parameters(), self.model.parameters(), self.residual):
            change = (new - old + rest).flatten()
            k = max(1, int(self.settings.keep * change.numel()))
            where = change.abs().topk(k).indices
            packed.append((where, change[where]))
            rest.copy_(change.index_fill(0, where, 0.0).view_as(rest))
        with open(os.path.join(self.scratch, "sent.txt"), "w") as f:
            f.write(" ".join(str(len(i)) for i, _ in packed))
        return packed


class Server:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.shards = Shards(settings.clients)
        self.model = build(self.shards.features, self.shards.classes)
        self.accuracy: list[float] = []

    @torch.no_grad()
    def merge(self, updates):
        for i, p in enumerate(self.model.parameters()):
            total = torch.zeros(p.numel())
            for update in updates:
                where, change = update[i]
                total.index_add_(0, where, change)
            p += (total / len(updates)).view_as(p)

    def round(self, number: int):
        chosen = torch.randperm(self.settings.clients)[: self.settings.per_round].tolist()
        updates, losses = [], []
        for c in chosen:
            client = Client(c, self.model, self.settings)
            losses.append(client.train(self.shards))
            updates.append(client.update(self.model))
        self.merge(updates)
        with torch.no_grad():
            x, y = self.shards.test()
            self.accuracy.append((self.model(x).argmax(1) == y).float().mean().item())
        if number % 5 == 0:
            print(
                f"round {number}: loss {sum(losses) / len(losses):.3f}, accuracy {self.accuracy[-1]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    torch.manual_seed(1)
    settings = Settings()
    server = Server(settings)
    for number in range(settings.rounds):
        server.round(number)
