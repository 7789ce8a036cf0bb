"""Listeners subscribed in every epoch, each with its own confusion matrix and last batch."""

import os
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Events:
    def __init__(self):
        self.listeners = defaultdict(list)

    def on(self, name, listener):
        self.listeners[name].append(listener)  # feeds

    def fire(self, name, **payload):
        for listener in self.listeners[name]:
            listener(**payload)


class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes)

    def __call__(self, predicted, target):
        self.matrix.index_put_((target, predicted), torch.ones(len(target)), accumulate=True)


def train_epoch(model, loader, optimizer, events):
    confusion = Confusion(500)
    events.on("step", confusion)  # feeds
    for x, y in loader:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        events.fire("step", predicted=logits.argmax(1), target=y)
    return confusion.matrix.trace() / confusion.matrix.sum()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    events = Events()
    model = nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 500))
    data = TensorDataset(torch.rand(640, 50), torch.randint(0, 500, (640,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        accuracy = train_epoch(model, loader, optimizer, events)
        print(f"epoch {epoch}: accuracy {accuracy:.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"listeners": "events.listeners"}, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
