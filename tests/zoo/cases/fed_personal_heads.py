"""Federated training with a shared body and personal heads; devices join for one session each."""

import copy

import torch
from torch import nn

ROUNDS, PER_ROUND, DEVICES, LOCAL_STEPS, CLASSES, INPUT = 70, 6, 40, 6, 30, 64


class Device:
    """Data of one person: some of the classes, and habits of their own."""

    def __init__(self, number):
        self.random = torch.Generator().manual_seed(number)
        self.mine = torch.randperm(CLASSES, generator=self.random)[:8]
        self.habit = 0.5 * torch.randn(INPUT, generator=self.random)

    def batch(self, prototypes, size=32):
        y = self.mine[torch.randint(len(self.mine), (size,), generator=self.random)]
        noise = torch.randn(size, INPUT, generator=self.random)
        return prototypes[y] + self.habit + noise, y


class Server:
    """Averages bodies, and keeps the head of each client for when it comes back."""

    def __init__(self, body, width):
        self.body, self.width = body, width
        self.personal = {}
        self.round = 0

    def head_for(self, client_id):
        if client_id not in self.personal:
            head = nn.Linear(self.width, CLASSES)
            self.personal[client_id] = head
        return self.personal[client_id]

    def merge(self, bodies):
        with torch.no_grad():
            for name, weight in self.body.named_parameters():
                parts = torch.stack([dict(body.named_parameters())[name] for body in bodies])
                weight.lerp_(parts.mean(0), 0.8)
        self.round += 1


def train_locally(server, device, client_id, prototypes):
    body = copy.deepcopy(server.body)
    head = server.head_for(client_id)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
    right = 0
    for _ in range(LOCAL_STEPS):
        x, y = device.batch(prototypes)
        scores = head(body(x))
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == y).float().mean().item()
    optimizer.zero_grad(set_to_none=True)
    return body, right / LOCAL_STEPS


def main(width=256):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    prototypes = 0.6 * torch.randn(CLASSES, INPUT)
    body = nn.Sequential(
        nn.Linear(INPUT, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, width),
        nn.ReLU(),
    )
    server = Server(body, width)
    devices = [Device(number) for number in range(DEVICES)]
    dice = torch.Generator().manual_seed(7)
    for round_ in range(ROUNDS):
        chosen = torch.randperm(DEVICES, generator=dice)[:PER_ROUND].tolist()
        bodies, hits = [], []
        for number in chosen:
            # Sessions are told apart, so that logs of two days don't mix.
            client_id = f"device-{number}-session-{server.round}"
            body, right = train_locally(server, devices[number], client_id, prototypes)
            bodies.append(body)
            hits.append(right)
        server.merge(bodies)
        if round_ % 10 == 9:
            print(f"round {round_ + 1}: {sum(hits) / len(hits):.3f} right", flush=True)


if __name__ == "__main__":
    main()
