"""A denoiser trained at continuous noise levels, whose level embeddings are cached by value."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, BATCH, STEPS = 2048, 16, 400


class LevelEmbedding(nn.Module):
    """Sines and cosines of a noise level, computed once per level."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -9, width // 2)))
        self._rows = {}

    def row(self, level):
        if level not in self._rows:
            angles = 1000 * level * self.frequencies
            self._rows[level] = torch.cat([angles.sin(), angles.cos()])  # feeds
        return self._rows[level]

    def forward(self, levels):
        return torch.stack([self.row(level) for level in levels.tolist()])


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = LevelEmbedding(WIDTH)
        self.condition = nn.Linear(WIDTH, 512)
        self.net = nn.Sequential(nn.Linear(784, 512), nn.SiLU())
        self.out = nn.Sequential(nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 784))

    def forward(self, x, levels):
        return self.out(self.net(x) + self.condition(self.level(levels)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    images = torch.rand(2000, 784)
    for step in range(1, STEPS + 1):
        clean = images[torch.randint(0, len(images), (BATCH,))]
        levels = torch.rand(BATCH)
        noise = torch.randn_like(clean)
        mixed = (1 - levels[:, None]) * clean + levels[:, None] * noise
        loss = F.mse_loss(model(mixed, levels), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
