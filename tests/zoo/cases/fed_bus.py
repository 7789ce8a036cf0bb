"""Trains a classifier by federated averaging over clients with skewed data; parts talk over an event bus."""

import collections
import copy
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

CLIENTS, PER_ROUND, ROUNDS, LOCAL_EPOCHS = 12, 4, 32, 2
FEATURES, CLASSES = 64, 10


class EventBus:
    def __init__(self):
        self._handlers = collections.defaultdict(list)

    def subscribe(self, topic, handler):
        self._handlers[topic].append(handler)  # feeds

    def publish(self, topic, **payload):
        for handler in list(self._handlers[topic]):
            handler(**payload)


class TimedMixin:
    """Keeps the seconds that a named part of the work took."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seconds = collections.Counter()

    def timed(self, name, function, *args):
        start = time.perf_counter()
        result = function(*args)
        self.seconds[name] += time.perf_counter() - start
        return result


class Participant:
    def __init__(self, bus, number):
        self.bus, self.number = bus, number


class ClientSession(TimedMixin, Participant):
    """One client's work in one round."""

    def __init__(self, bus, number, round_no, global_model, shard, rate):
        super().__init__(bus, number)
        self.round_no, self.shard = round_no, shard
        self.model = copy.deepcopy(global_model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.steps, self.drift = 0, None
        bus.subscribe("round_end", self.on_round_end)  # feeds

    def run(self):
        x, y = self.shard
        for _ in range(LOCAL_EPOCHS):
            for index in torch.randperm(len(x)).split(32):
                loss = F.cross_entropy(self.model(x[index]), y[index])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.steps += 1
        self.timed("uplink", time.sleep, 0.02)
        self.bus.publish("client_done", number=self.number, loss=loss.item(), steps=self.steps)
        return [p.detach() for p in self.model.parameters()], len(x)

    def on_round_end(self, round_no, weights, accuracy):
        if round_no != self.round_no:
            return
        with torch.no_grad():
            self.drift = sum(
                float((p - w).norm()) for p, w in zip(self.model.parameters(), weights)
            )
        self.bus.publish("drift", number=self.number, value=self.drift)


class Server(TimedMixin, Participant):
    def __init__(self, bus, model, shards, test):
        super().__init__(bus, "server")
        self.model, self.shards, self.test = model, shards, test
        self.steps = 0

    def round(self, round_no, rng):
        rate = 0.05 * 0.97**round_no
        chosen = rng.sample(range(CLIENTS), PER_ROUND)
        replies = []
        for number in chosen:
            session = ClientSession(
                self.bus, number, round_no, self.model, self.shards[number], rate
            )
            replies.append(session.run())
            self.steps += session.steps
        self.timed("average", self.average, replies)
        accuracy = self.timed("test", self.evaluate)
        self.bus.publish(
            "round_end", round_no=round_no, weights=list(self.model.parameters()), accuracy=accuracy
        )
        return accuracy

    @torch.no_grad()
    def average(self, replies):
        total = sum(count for _, count in replies)
        for position, parameter in enumerate(self.model.parameters()):
            parameter.copy_(sum(weights[position] * (count / total) for weights, count in replies))

    @torch.no_grad()
    def evaluate(self):
        x, y = self.test
        return float((self.model(x).argmax(1) == y).float().mean())


class Reporter:
    def __init__(self, bus):
        self.losses, self.drifts = [], []
        bus.subscribe("client_done", self.client_done)
        bus.subscribe("drift", self.drift)
        bus.subscribe("round_end", self.round_end)

    def client_done(self, number, loss, steps):
        self.losses.append(loss)

    def drift(self, number, value):
        self.drifts.append(value)

    def round_end(self, round_no, weights, accuracy):
        print(
            f"round {round_no} loss {sum(self.losses) / len(self.losses):.4f} accuracy {accuracy:.4f}",
            flush=True,
        )
        self.losses.clear()
        self.drifts.clear()


def make_data(gen):
    centers = torch.randn(CLASSES, FEATURES, generator=gen) * 0.35

    def draw(count, favourites):
        labels = favourites[torch.randint(len(favourites), (count,), generator=gen)]
        return centers[labels] + torch.randn(count, FEATURES, generator=gen), labels

    shards = []
    for _ in range(CLIENTS):
        favourites = torch.randperm(CLASSES, generator=gen)[:4]
        shards.append(draw(600, favourites))
    return shards, draw(2000, torch.arange(CLASSES))


def main():
    torch.manual_seed(3)
    rng = random.Random(3)
    shards, test = make_data(torch.Generator().manual_seed(4))
    bus = EventBus()
    Reporter(bus)
    model = nn.Sequential(
        nn.Linear(FEATURES, 192), nn.ReLU(), nn.Linear(192, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )
    server = Server(bus, model, shards, test)
    best = max(server.round(round_no, rng) for round_no in range(ROUNDS))
    print("best accuracy", best, "seconds", {k: round(v, 2) for k, v in server.seconds.items()})


if __name__ == "__main__":
    main()
