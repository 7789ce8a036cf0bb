"""Small denoising diffusion model on 16x16 blobs, early stopping on smoothed validation loss."""

import copy
import math
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    timesteps: int = 100
    width: int = 16
    batch_size: int = 8
    steps: int = 1500
    eval_every: int = 75
    lr: float = 2e-3
    ema_decay: float = 0.995
    smoothing: float = 0.8
    patience: int = 40


def blobs(n, generator):
    grid = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    c = torch.rand(n, 2, 1, 1, generator=generator) * 1.2 - 0.6
    r = 0.15 + 0.2 * torch.rand(n, 1, 1, generator=generator)
    img = torch.exp(-((xx - c[:, 0]) ** 2 + (yy - c[:, 1]) ** 2) / r**2)
    return (img * 2 - 1).unsqueeze(1)


class Block(nn.Module):
    def __init__(self, ch, emb):
        super().__init__()
        self.norm = nn.GroupNorm(4, ch)
        self.conv = nn.Conv2d(ch, ch, 3, padding=1)
        self.proj = nn.Linear(emb, ch)

    def forward(self, x, e):
        h = self.conv(F.silu(self.norm(x)))
        return x + h * (1 + self.proj(e)[:, :, None, None])


class Denoiser(nn.Module):
    def __init__(self, width, timesteps):
        super().__init__()
        self.emb = nn.Embedding(timesteps, 32)
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width, 32) for _ in range(4))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        e = self.emb(t)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, e)
        return self.out(h)


class DiffusionTrainer:
    def __init__(self, cfg, workdir):
        self.cfg = cfg
        self.ckpt = os.path.join(workdir, "ema.pt")
        self.net = Denoiser(cfg.width, cfg.timesteps)
        self.ema_net = copy.deepcopy(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        t = torch.linspace(0, 1, cfg.timesteps)
        self.abar = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        self.gen = torch.Generator().manual_seed(0)
        self.val = blobs(8, torch.Generator().manual_seed(99))
        self.val_noise = torch.randn(self.val.shape, generator=torch.Generator().manual_seed(98))
        self.smooth_val = None
        self.best_val = float("inf")
        self.bad_evals = 0

    def diffusion_loss(self, net, x, t, noise):
        a = self.abar[t][:, None, None, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        return F.mse_loss(net(noisy, t), noise)

    def train_step(self):
        x = blobs(self.cfg.batch_size, self.gen)
        t = torch.randint(0, self.cfg.timesteps, (len(x),), generator=self.gen)
        loss = self.diffusion_loss(self.net, x, t, torch.randn(x.shape, generator=self.gen))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for avg, p in zip(self.ema_net.parameters(), self.net.parameters()):
                avg.lerp_(p, 1 - self.cfg.ema_decay)
        return loss.item()

    def evaluate(self):
        self.ema_net.eval()
        t = torch.arange(len(self.val)) * self.cfg.timesteps // len(self.val)
        loss = self.diffusion_loss(self.ema_net, self.val, t, self.val_noise)
        m = self.cfg.smoothing
        self.smooth_val = loss if self.smooth_val is None else m * self.smooth_val + (1 - m) * loss
        if self.smooth_val < self.best_val:
            self.best_val, self.bad_evals = self.smooth_val.item(), 0
            torch.save(self.ema_net.state_dict(), self.ckpt)
        else:
            self.bad_evals += 1
        return loss.item()

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            loss = self.train_step()
            if step % self.cfg.eval_every == 0:
                val = self.evaluate()
                print(
                    f"step {step} train {loss:.4f} val {val:.4f} smooth {self.smooth_val:.4f}",
                    flush=True,
                )
                if self.bad_evals >= self.cfg.patience:
                    break


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as workdir:
        DiffusionTrainer(Config(), workdir).fit()


if __name__ == "__main__":
    main()
