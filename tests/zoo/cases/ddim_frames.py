"""A small diffusion model with averaged weights, which draws a few pictures after each epoch."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

SIZE, TIMES, BATCH, EPOCHS, STEPS, DRAWN = 24, 100, 24, 20, 10, 12


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.time = nn.Embedding(TIMES, width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Sequential(
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, noisy, times):
        hidden = self.enter(noisy) + self.time(times)[:, :, None, None]
        return self.leave(hidden + self.middle(hidden))


class Schedule:
    def __init__(self):
        self.alphas = torch.cos(torch.linspace(0, 1.5, TIMES + 1)).square()[1:]

    def noisy(self, pictures, noise, times):
        alpha = self.alphas[times].view(-1, 1, 1, 1)
        return alpha.sqrt() * pictures + (1 - alpha).sqrt() * noise


class Averaged:
    """The model that is drawn with: a moving average of the trained one."""

    def __init__(self, model, decay=0.98):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, its in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(its, 1 - self.decay)


class DdimSampler:
    """Draws pictures in few steps, and has the frames of how they came about."""

    frames: list[torch.Tensor] = []

    def __init__(self, model, schedule, steps=10):
        self.model = model
        self.alphas = schedule.alphas
        self.times = torch.linspace(TIMES - 1, 0, steps).long()

    @torch.no_grad()
    def draw(self, count):
        x = torch.randn(count, 1, SIZE, SIZE)
        for now, then in zip(self.times[:-1], self.times[1:], strict=True):
            noise = self.model(x, now.expand(count))
            clean = (x - (1 - self.alphas[now]).sqrt() * noise) / self.alphas[now].sqrt()
            clean = clean.clamp(-2, 2)
            x = self.alphas[then].sqrt() * clean + (1 - self.alphas[then]).sqrt() * noise
            self.frames.append(torch.stack([x, clean]))
        return x

    def sharpness(self):
        """Return how fast the last drawing became clear."""
        last = self.frames[-len(self.times) + 1 :]
        return float(torch.stack([f[1].diff(dim=-1).abs().mean() for f in last]).diff().mean())


def pictures(count):
    """Return squares of any place and size."""
    axis = torch.arange(SIZE)
    start = torch.randint(0, SIZE // 2, (count, 2, 1))
    length = torch.randint(4, SIZE // 2, (count, 1, 1))
    inside = (axis >= start) & (axis < start + length)
    return (inside[:, :1, :].float() * inside[:, 1:, :].transpose(1, 2).float()).unsqueeze(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, schedule = Denoiser(), Schedule()
    averaged = Averaged(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            clean = pictures(BATCH)
            noise = torch.randn_like(clean)
            times = torch.randint(0, TIMES, (BATCH,))
            loss = F.mse_loss(model(schedule.noisy(clean, noise, times), times), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averaged.update(model)
        sampler = DdimSampler(averaged.model, schedule)
        drawn = sampler.draw(DRAWN)
        text = f"loss {loss.item():.3f}, spread {drawn.std():.2f}, {sampler.sharpness():.4f}"
        print(f"epoch {epoch}: {text}", flush=True)


if __name__ == "__main__":
    main()
