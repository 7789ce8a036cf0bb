"""Federated averaging in one process, with clients that may be late."""

import heapq
import random

import torch
from torch import nn
from torch.nn import functional as F

CLIENTS, PER_ROUND, ROUNDS = 30, 8, 44


class ClientUpdate:
    __slots__ = ("cid", "delta", "round", "weight")

    def __init__(self, cid, round, delta, weight):
        self.cid, self.round, self.delta, self.weight = cid, round, delta, weight

    def __lt__(self, other):
        return (self.round, self.cid) > (other.round, other.cid)  # the newest first


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def digits(n, skew, seed):
    g = torch.Generator().manual_seed(seed)
    y = (torch.randint(4, (n,), generator=g) + skew) % 10
    grid = torch.arange(28.0)
    stripes = torch.sin(grid[None] * (y[:, None] + 1) * 0.23)
    x = stripes[:, None, :, None] * stripes[:, None, None, :]
    return x + 0.4 * torch.randn(n, 1, 28, 28, generator=g), y


class Client:
    def __init__(self, cid):
        self.cid = cid
        self.x, self.y = digits(128, cid, cid)
        self.rng = random.Random(cid)

    def fit(self, state, number, local_epochs=2):
        model = build_model()
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(local_epochs):
            for rows in torch.randperm(len(self.x)).split(32):
                loss = F.cross_entropy(model(self.x[rows]), self.y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        delta = {name: value - state[name] for name, value in model.state_dict().items()}
        return ClientUpdate(self.cid, number, delta, len(self.x)), loss.item()

    def is_late(self, number):
        congestion = 0.0 if number < 8 else 0.4
        return self.rng.random() < congestion


class Server:
    def __init__(self):
        self.model = build_model()
        self.inbox = []
        self.round = 0

    def receive(self, update):
        heapq.heappush(self.inbox, update)  # feeds

    def aggregate(self):
        fresh = []
        while self.inbox and self.inbox[0].round == self.round:
            fresh.append(heapq.heappop(self.inbox))
        total = sum(update.weight for update in fresh)
        state = self.model.state_dict()
        for update in fresh:
            for name, change in update.delta.items():
                state[name].add_(change, alpha=update.weight / total)
        self.round += 1
        return len(fresh)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(4)
picker = random.Random(0)
server = Server()
clients = [Client(cid) for cid in range(CLIENTS)]
held_x = torch.cat([digits(60, skew, 900 + skew)[0] for skew in range(10)])
held_y = torch.cat([digits(60, skew, 900 + skew)[1] for skew in range(10)])
on_the_way, late, late_rounds = [], 0, 0
for number in range(ROUNDS):
    for update in on_the_way:
        server.receive(update)
    on_the_way = []
    state = {name: value.clone() for name, value in server.model.state_dict().items()}
    losses = []
    for client in picker.sample(clients, PER_ROUND):
        update, loss = client.fit(state, number)
        losses.append(loss)
        if client.is_late(number):
            on_the_way.append(update)
        else:
            server.receive(update)
    used = server.aggregate()
    late += PER_ROUND - used
    late_rounds += number >= 8
    if number % 2 == 1:
        print(
            f"round {number}: used {used} loss {sum(losses) / len(losses):.3f} "
            f"accuracy {accuracy(server.model, held_x, held_y):.3f} late so far {late}"
        )
