"""Train a small VAE on synthetic glyphs and keep a gallery of reconstructions for the report."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Config:
    epochs: int = 10
    batch: int = 64
    train_size: int = 9600
    val_size: int = 1280
    hidden: int = 384
    latent: int = 16
    lr: float = 1e-3
    beta: float = 0.5
    seed: int = 7


class ReconRecord:
    """One batch of originals next to what the decoder made of them."""

    __slots__ = ("decoded", "elbo", "index", "original")

    def __init__(self, index, original, decoded, elbo):
        self.index = index
        self.original = original
        self.decoded = decoded
        self.elbo = elbo


class Gallery:
    def __init__(self):
        self.pages: dict[int, dict[str, list[ReconRecord]]] = defaultdict(dict)

    def page(self, epoch, kind):
        return self.pages[epoch].setdefault(kind, [])


class Reporter:
    def __init__(self):
        self.gallery = Gallery()
        self.lines = []

    def say(self, text):
        self.lines.append(text)
        print(text, flush=True)


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(784, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, cfg.hidden), nn.GELU()
        )
        self.to_mu = nn.Linear(cfg.hidden, cfg.latent)
        self.to_logvar = nn.Linear(cfg.hidden, cfg.latent)
        self.dec = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, 784)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return self.dec(z), mu, logvar


def elbo_loss(logits, x, mu, logvar, beta):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + beta * kl


class VAEExperiment:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        random.seed(cfg.seed)
        glyphs = (torch.rand(cfg.train_size + cfg.val_size, 784) < 0.2).float()
        self.train_dl = DataLoader(
            TensorDataset(glyphs[: cfg.train_size]), cfg.batch, shuffle=True, drop_last=True
        )
        self.val_dl = DataLoader(TensorDataset(glyphs[cfg.train_size :]), cfg.batch)
        self.net = VAE(cfg)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr)
        self.reporter = Reporter()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.net.train()
            total = 0.0
            for (x,) in self.train_dl:
                logits, mu, logvar = self.net(x)
                loss = elbo_loss(logits, x, mu, logvar, self.cfg.beta)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                total += loss.item()
            self.reporter.say(
                f"epoch {epoch} train {total / len(self.train_dl):.2f} "
                f"val {self.evaluate(epoch):.2f}"
            )

    @torch.no_grad()
    def evaluate(self, epoch):
        self.net.eval()
        page = self.reporter.gallery.page(epoch, "recon")
        total = 0.0
        for i, (x,) in enumerate(self.val_dl):
            logits, mu, logvar = self.net(x)
            elbo = elbo_loss(logits, x, mu, logvar, self.cfg.beta).item()
            if i % 2 == 0:
                page.append(ReconRecord(i, x, torch.sigmoid(logits), elbo))  # feeds
            total += elbo
        return total / len(self.val_dl)


if __name__ == "__main__":
    VAEExperiment(Config()).fit()
