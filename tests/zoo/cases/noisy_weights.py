"""Trains a classifier of gestures whose weights are shaken, each epoch anew, to find flat minima."""

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset

SETTINGS = {"epochs": 30, "batch": 48, "sigma": 0.004, "lr": 1e-3, "width": 320}


class Shake(nn.Module):
    """Adds a fixed random direction to a weight while the model is in training."""

    def __init__(self, weight, sigma):
        super().__init__()
        self.register_buffer("direction", sigma * torch.randn_like(weight), persistent=False)

    def forward(self, weight):
        return weight + self.direction if self.training else weight

    def right_inverse(self, weight):
        return weight


class Gestures(nn.Module):
    def __init__(self, channels, classes, width):
        super().__init__()
        self.cell = nn.GRU(channels, 64, batch_first=True)
        self.body = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, track):
        return self.head(self.body(self.cell(track)[0].mean(1)))


def tracks(count, seed, length=24, channels=6, classes=8):
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, (count,), generator=random)
    shape = torch.randn(
        classes, length, channels, generator=torch.Generator().manual_seed(9)
    ).cumsum(1)
    return shape[label] + 2 * torch.randn(count, length, channels, generator=random), label


class Fit:
    def __init__(self, settings):
        self.settings = settings
        self.model = Gestures(6, 8, settings["width"])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings["lr"])
        self.train = DataLoader(TensorDataset(*tracks(1440, 0)), settings["batch"], shuffle=True)
        self.held = tracks(256, 1)

    def shake(self):
        for layer in self.model.body:
            if isinstance(layer, nn.Linear):
                parametrize.register_parametrization(
                    layer, "weight", Shake(layer.weight.detach(), self.settings["sigma"])
                )

    def epoch(self):
        self.model.train()
        self.shake()
        for track, label in self.train:
            loss = nn.functional.cross_entropy(self.model(track), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def score(self):
        self.model.eval()
        track, label = self.held
        return (self.model(track).argmax(-1) == label).float().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fit = Fit(SETTINGS)
    for epoch in range(SETTINGS["epochs"]):
        print(f"epoch {epoch}: loss {fit.epoch():.3f}, right {fit.score():.3f}", flush=True)


if __name__ == "__main__":
    main()
