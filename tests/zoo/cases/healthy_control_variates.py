"""Federated training with SCAFFOLD: a client's control variate is made when it first takes part."""

import torch
from torch import nn

ROUNDS, CLIENTS, PER_ROUND, LOCAL_STEPS, INPUT, CLASSES = 80, 36, 3, 12, 48, 12


class Client:
    """Data of one hospital, skewed to some of the classes."""

    def __init__(self, number):
        self.random = torch.Generator().manual_seed(number)
        self.weights = torch.rand(CLASSES, generator=self.random) ** 4 + 1e-3
        self.offset = 0.3 * torch.randn(INPUT, generator=self.random)

    def batch(self, prototypes, size=48):
        y = torch.multinomial(self.weights, size, replacement=True, generator=self.random)
        noise = torch.randn(size, INPUT, generator=self.random)
        return prototypes[y] + self.offset + noise, y


class Server:
    def __init__(self, model):
        self.model = model
        self.control = [torch.zeros_like(p) for p in model.parameters()]
        self.of_client = {}
        self.losses = []

    def control_of(self, number):
        if number not in self.of_client:
            self.of_client[number] = [torch.zeros_like(p) for p in self.model.parameters()]
        return self.of_client[number]

    def merge(self, deltas, changes):
        with torch.no_grad():
            for weight, *parts in zip(self.model.parameters(), *deltas, strict=True):
                weight += torch.stack(parts).mean(0)
            for control, *parts in zip(self.control, *changes, strict=True):
                control += torch.stack(parts).sum(0) / CLIENTS


def local_round(server, number, client, prototypes, rate=0.05):
    """Train at a client; return how weights and its control variate change."""
    start = [p.detach().clone() for p in server.model.parameters()]
    weights = [p.clone().requires_grad_() for p in start]
    names = [name for name, _ in server.model.named_parameters()]
    mine, total = server.control_of(number), 0.0
    for _ in range(LOCAL_STEPS):
        x, y = client.batch(prototypes)
        named = dict(zip(names, weights, strict=True))
        scores = torch.func.functional_call(server.model, named, (x,))
        loss = nn.functional.cross_entropy(scores, y)
        grads = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, grad, own, shared in zip(weights, grads, mine, server.control, strict=True):
                weight -= rate * (grad - own + shared)
        total += loss.item()
    deltas, changes = [], []
    with torch.no_grad():
        for place, (weight, first) in enumerate(zip(weights, start, strict=True)):
            delta = weight - first
            change = -server.control[place] - delta / (LOCAL_STEPS * rate)
            mine[place] += change
            deltas.append(delta)
            changes.append(change)
    return deltas, changes, total / LOCAL_STEPS


def main(width=384):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(INPUT, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )
    server, clients = Server(model), [Client(number) for number in range(CLIENTS)]
    prototypes, dice = 0.7 * torch.randn(CLASSES, INPUT), torch.Generator().manual_seed(1)
    for round_ in range(ROUNDS):
        chosen = torch.randperm(CLIENTS, generator=dice)[:PER_ROUND].tolist()
        done = [local_round(server, number, clients[number], prototypes) for number in chosen]
        server.merge([one[0] for one in done], [one[1] for one in done])
        server.losses.append(sum(one[2] for one in done) / PER_ROUND)
        if round_ % 10 == 9:
            last = sum(server.losses[-10:]) / 10
            print(f"round {round_ + 1}: {last:.3f}, {len(server.of_client)} took part", flush=True)


if __name__ == "__main__":
    main()
