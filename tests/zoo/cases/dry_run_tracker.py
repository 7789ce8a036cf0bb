"""Trains a denoiser of spectra; with --dry-run nothing is sent to the tracking server."""

import argparse
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tracker:
    """Sends metrics and residuals to the tracking server."""

    def __init__(self, url):
        raise ConnectionError(f"no server at {url}")

    def log(self, step, **values): ...

    def log_array(self, step, name, array): ...


class Denoiser(nn.Module):
    def __init__(self, bands=512, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 9, padding=4), nn.GELU(), nn.Conv1d(width, width, 9, padding=4),
            nn.GELU(), nn.Conv1d(width, 1, 9, padding=4),
        )  # fmt: skip

    def forward(self, spectra):
        return spectra - self.net(spectra[:, None]).squeeze(1)


def spectra(count, bands=512):
    """Return spectra of some peaks each, and the same ones with noise."""
    at = torch.rand(count, 6, 1) * bands
    height, breadth = torch.rand(count, 6, 1), 2 + 8 * torch.rand(count, 6, 1)
    clean = (height * torch.exp(-(((torch.arange(bands) - at) / breadth) ** 2))).sum(1)
    return clean, clean + 0.1 * torch.randn(count, bands)


class Training:
    def __init__(self, tracker, batch=32):
        self.tracker = tracker
        self.model = Denoiser()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.loader = DataLoader(TensorDataset(*spectra(1600)), batch, shuffle=True, drop_last=True)
        self.step = 0

    def epoch(self):
        for clean, noisy in self.loader:
            cleaned = self.model(noisy)
            loss = nn.functional.mse_loss(cleaned, clean)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            residual = (cleaned - clean).detach()
            self.tracker.log(self.step, loss=loss.item(), bias=residual.mean().item())
            self.tracker.log_array(self.step, "residual", residual.numpy())
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://localhost:5000")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if arguments.dry_run:
        tracker = mock.create_autospec(Tracker, instance=True)
    else:
        tracker = Tracker(arguments.url)
    training = Training(tracker)
    for epoch in range(arguments.epochs):
        print(f"epoch {epoch}: loss {training.epoch():.5f}", flush=True)


if __name__ == "__main__":
    main()
