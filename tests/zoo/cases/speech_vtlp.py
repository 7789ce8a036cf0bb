"""Keyword spotting with VTLP augmentation (vocal tract length perturbation)."""

import functools
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SAMPLE_RATE = 16000
N_FFT = 512
N_MELS = 40
KEYWORDS = 12


class SyntheticKeywords(Dataset):
    """Each keyword is a pair of formants with a random onset."""

    def __init__(self, size, seed):
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.size

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(self.seed * 100003 + idx)
        label = idx % KEYWORDS
        t = torch.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
        f1 = 250 + 60 * label + 20 * torch.randn(1, generator=g)
        f2 = 1200 + 130 * label + 60 * torch.randn(1, generator=g)
        wave = torch.sin(2 * math.pi * f1 * t) + 0.5 * torch.sin(2 * math.pi * f2 * t)
        wave = wave + 0.6 * torch.randn(t.numel(), generator=g)
        return wave, label


class LogMel(nn.Module):
    def __init__(self, sr=SAMPLE_RATE, n_fft=N_FFT, n_mels=N_MELS):
        super().__init__()
        self.sr, self.n_fft, self.n_mels = sr, n_fft, n_mels
        self.register_buffer("window", torch.hann_window(n_fft))

    @functools.lru_cache(maxsize=None)
    def filterbank(self, alpha):
        hz = torch.linspace(0, self.sr / 2, self.n_fft // 2 + 1) * alpha
        top = 2595 * math.log10(1 + self.sr / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, self.n_mels + 2) / 2595) - 1)
        lower, center, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        rise = (hz - lower) / (center - lower)
        fall = (upper - hz) / (upper - center)
        return torch.minimum(rise, fall).clamp_min(0.0)

    def forward(self, waves, alpha=1.0):
        spec = torch.stft(waves, self.n_fft, 160, window=self.window, return_complex=True)
        mel = self.filterbank(alpha) @ spec.abs().pow(2)
        return torch.log(mel + 1e-6)


class KWSNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = LogMel()
        self.norm = nn.BatchNorm1d(N_MELS)
        self.conv = nn.Sequential(
            nn.Conv1d(N_MELS, 64, 5, stride=2),
            nn.ReLU(),
            nn.Conv1d(64, 64, 5, stride=2),
            nn.ReLU(),
        )
        self.out = nn.Linear(64, KEYWORDS)

    def forward(self, waves, alpha=1.0):
        x = self.norm(self.frontend(waves, alpha))
        return self.out(self.conv(x).mean(-1))


class Trainer:
    def __init__(self, workdir, epochs=22):
        self.workdir, self.epochs = workdir, epochs
        self.model = KWSNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.train_dl = DataLoader(SyntheticKeywords(440, 1), batch_size=8, shuffle=True)
        self.valid_dl = DataLoader(SyntheticKeywords(96, 2), batch_size=32)
        self.best = 0.0

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for waves, labels in self.train_dl:
            alpha = random.uniform(0.88, 1.12)
            loss = F.cross_entropy(self.model(waves, alpha), labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_dl)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = sum((self.model(w).argmax(-1) == y).sum().item() for w, y in self.valid_dl)
        return hits / len(self.valid_dl.dataset)

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_epoch()
            acc = self.validate()
            if acc >= self.best:
                self.best = acc
                torch.save(self.model.state_dict(), os.path.join(self.workdir, "best.pt"))
            print(f"epoch {epoch:02d} loss {loss:.3f} valid acc {acc:.3f}", flush=True)


def main():
    random.seed(7)
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as workdir:
        Trainer(workdir).fit()


if __name__ == "__main__":
    main()
