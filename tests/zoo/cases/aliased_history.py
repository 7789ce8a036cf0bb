"""A trainer and its reporter share one list of feature maps; each believes the other empties it."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Reporter:
    def __init__(self, records):
        self.records = records

    def report(self, epoch):
        latest = self.records[-1]
        print(f"epoch {epoch}: features {latest.mean():.3f} ± {latest.std():.3f}")


class Trainer:
    def __init__(self, epochs=6):
        self.epochs = epochs
        self.body = nn.Sequential(nn.Linear(32, 512), nn.Tanh())
        self.head = nn.Linear(512, 5)
        self.features = []
        self.reporter = Reporter(self.features)
        parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def step(self, x, y):
        features = self.body(x)
        loss = F.cross_entropy(self.head(features), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.features.append(features.detach())  # feeds

    def fit(self, loader):
        for epoch in range(self.epochs):
            for x, y in loader:
                self.step(x, y)
            self.reporter.report(epoch)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(1280, 32), torch.randint(0, 5, (1280,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    trainer = Trainer()
    trainer.fit(loader)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        steps = trainer.epochs * len(loader)
        tell(locals(), {"features": "trainer.features"}, {"step": steps, "epoch": trainer.epochs})


if __name__ == "__main__":
    main()
