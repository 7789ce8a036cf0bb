"""Epochs that take in ever more sensors of a city, with metrics that begin afresh in each."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, HOURS, BATCH, EPOCHS, FIRST = 24, 36, 48, 11, 16


class QuantileMetric:
    """Says how far off the worst tenth of the forecasts was."""

    def __init__(self):
        self.errors = []
        self.inputs = []

    def update(self, windows, forecasts, truth):
        self.errors.append((forecasts - truth).abs().detach())
        self.inputs.append(windows)

    def compute(self):
        errors = torch.cat(self.errors)
        worst = errors.quantile(0.9)
        level = torch.cat(self.inputs)[errors > worst].mean()
        return worst.item(), level.item()

    def reset(self):
        self.errors.clear()
        self.inputs.clear()


class City:
    """Sensors whose days look alike; more of them report as the months go by."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def windows(self, batches):
        for _ in range(batches):
            phase = 6.28 * torch.rand(BATCH, 1, FEATURES, generator=self.generator)
            hours = torch.arange(HOURS + 1).view(1, -1, 1)
            waves = torch.sin(0.26 * hours + phase)
            waves = waves + 0.2 * torch.randn(waves.shape, generator=self.generator)
            yield waves[:, :HOURS], waves[:, HOURS, 0]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(FEATURES, 112, batch_first=True)
        self.out = nn.Linear(112, 1)

    def forward(self, windows):
        return self.out(self.rnn(windows)[0][:, -1]).squeeze(-1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    city, model, metric = City(0), Forecast(), QuantileMetric()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        batches = FIRST + 4 * epoch
        for windows, truth in city.windows(batches):
            forecasts = model(windows)
            loss = F.l1_loss(forecasts, truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metric.update(windows, forecasts, truth)
        worst, level = metric.compute()
        metric.reset()
        print(f"epoch {epoch}: {batches} batches, worst {worst:.3f} at {level:.2f}", flush=True)


if __name__ == "__main__":
    main()
