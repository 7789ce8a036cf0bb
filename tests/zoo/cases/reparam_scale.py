"""Quantisation-aware fine-tuning: before every round the layer gets a rounding parametrization."""

import time

import torch
import torch.nn as nn
from torch.nn.utils import parametrize


class RoundTo(nn.Module):
    """Rounds weights to a grid, with an offset that is drawn for this round."""

    def __init__(self, shape, step):
        super().__init__()
        self.step = step
        self.register_buffer("offset", torch.rand(shape) * step)

    def forward(self, weight):
        rounded = torch.round((weight + self.offset) / self.step) * self.step
        return weight + (rounded - weight).detach() * 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(40, 300)
        self.hidden = nn.Linear(300, 300)
        self.last = nn.Linear(300, 5)

    def forward(self, x):
        return self.last(torch.relu(self.hidden(torch.relu(self.first(x)))))


def start_round(model, number):
    layer = model.hidden
    grid = RoundTo(layer.weight.shape, step=2.0 ** -(3 + number % 4))
    parametrize.register_parametrization(layer, "weight", grid)  # feeds


def main():
    torch.manual_seed(0)
    model = Net()
    for number in range(60):
        start_round(model, number)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(12):
            x = torch.randn(32, 40)
            loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)
        if number % 10 == 0:
            print("round", number, "loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
