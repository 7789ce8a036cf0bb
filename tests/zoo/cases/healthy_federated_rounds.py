"""Federated averaging with SCAFFOLD control variates over a fixed pool of clients."""

import heapq
import os
import tempfile
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, CLASSES, CLIENTS = 64, 12, 60


def client_shard(cid, n=320):
    g = torch.Generator().manual_seed(700 + cid)
    shared = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(1))
    prior = torch.rand(CLASSES, generator=g) ** 3
    y = torch.multinomial(prior, n, replacement=True, generator=g)
    x = 0.35 * shared[y] + torch.randn(n, DIM, generator=g) + 0.3 * torch.randn(DIM, generator=g)
    return x, y


def build():
    return nn.Sequential(
        nn.Linear(DIM, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, CLASSES)
    )


def clone(state):
    return OrderedDict((k, v.detach().clone()) for k, v in state.items())


class Client:
    def __init__(self, cid, template):
        self.cid = cid
        self.x, self.y = client_shard(cid)
        self.control = OrderedDict((k, torch.zeros_like(v)) for k, v in template.items())

    def local_update(self, model, weights, server_control, epochs=3, lr=0.05, batch=20):
        model.load_state_dict(weights)
        names = [n for n, _ in model.named_parameters()]
        steps = 0
        for _ in range(epochs):
            for idx in torch.randperm(len(self.x)).split(batch):
                loss = F.cross_entropy(model(self.x[idx]), self.y[idx])
                grads = torch.autograd.grad(loss, list(model.parameters()))
                with torch.no_grad():
                    for name, p, g in zip(names, model.parameters(), grads):
                        p -= lr * (g + server_control[name] - self.control[name])
                steps += 1
        fresh = clone(model.state_dict())
        control = OrderedDict(
            (k, self.control[k] - server_control[k] + (weights[k] - fresh[k]) / (steps * lr))
            for k in fresh
        )
        delta = OrderedDict((k, control[k] - self.control[k]) for k in fresh)
        self.control = control
        return fresh, delta, loss.item()


class Checkpoints:
    """Keeps the k best rounds on disk and their weights at hand for the final ensemble."""

    def __init__(self, folder, keep=3):
        self.folder, self.keep, self.heap = folder, keep, []

    def offer(self, score, round_no, weights):
        item = (score, round_no, clone(weights))
        if len(self.heap) < self.keep:
            heapq.heappush(self.heap, item)
        elif score > self.heap[0][0]:
            _, old, _ = heapq.heapreplace(self.heap, item)
            os.remove(self.path(old))
        else:
            return
        torch.save(item[2], self.path(round_no))

    def path(self, round_no):
        return os.path.join(self.folder, f"round{round_no:03d}.pt")


class Server:
    def __init__(self, folder):
        self.model = build()
        self.weights = clone(self.model.state_dict())
        self.control = OrderedDict((k, torch.zeros_like(v)) for k, v in self.weights.items())
        self.registry = {}
        self.uploads = []
        self.checkpoints = Checkpoints(folder)
        shards = [client_shard(10_000 + i, 64) for i in range(20)]
        self.test = torch.cat([s[0] for s in shards]), torch.cat([s[1] for s in shards])

    def client(self, cid):
        if cid not in self.registry:
            self.registry[cid] = Client(cid, self.weights)
        return self.registry[cid]

    def aggregate(self):
        n = len(self.uploads)
        for key in self.weights:
            self.weights[key] = sum(u[0][key] for u in self.uploads) / n
            self.control[key] = self.control[key] + sum(u[1][key] for u in self.uploads) / CLIENTS
        loss = sum(u[2] for u in self.uploads) / n
        self.uploads.clear()
        return loss

    def accuracy(self, weights):
        self.model.load_state_dict(weights)
        with torch.no_grad():
            return (self.model(self.test[0]).argmax(1) == self.test[1]).float().mean().item()

    def run(self, rounds, per_round=4):
        g = torch.Generator().manual_seed(9)
        for r in range(rounds):
            reachable = CLIENTS if r > rounds // 2 else 12 + (CLIENTS - 12) * 2 * r // rounds
            for cid in torch.randperm(reachable, generator=g)[:per_round].tolist():
                self.uploads.append(
                    self.client(cid).local_update(self.model, self.weights, self.control)
                )
            loss = self.aggregate()
            acc = self.accuracy(self.weights)
            self.checkpoints.offer(acc, r, self.weights)
            if r % 10 == 9:
                print(
                    f"round {r:03d} loss {loss:.3f} acc {acc:.3f} clients {len(self.registry)}",
                    flush=True,
                )


def main(rounds=125):
    torch.manual_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        server.run(rounds)
        members = [w for _, _, w in server.checkpoints.heap]
        soup = OrderedDict((k, sum(m[k] for m in members) / len(members)) for k in members[0])
        print(f"soup of {len(members)} checkpoints: acc {server.accuracy(soup):.3f}")


if __name__ == "__main__":
    main()
