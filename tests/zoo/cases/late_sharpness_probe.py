"""Trains a small residual net; sharpness-aware steps begin once the rate has come down."""

import torch
from torch import nn

STEPS, PLAIN, BATCH, SIZE, CLASSES = 420, 250, 24, 24, 8


class Textures:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.waves = torch.randn(CLASSES, 2, generator=self.random)

    def batch(self):
        labels = torch.randint(CLASSES, (BATCH,), generator=self.random)
        ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        waves = self.waves[labels][..., None, None]
        phase = 6 * torch.rand(BATCH, 1, 1, generator=self.random)
        clean = torch.sin(waves[:, 0] * ys + waves[:, 1] * xs + phase)
        noise = torch.randn(clean.shape, generator=self.random)
        return (clean + 1.5 * noise)[:, None], labels


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.second(self.first(self.norm(x)).relu())


def network(width=24):
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1), Residual(width), nn.ReLU(), Residual(width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES),
    )  # fmt: skip


class SharpnessAware:
    """Climbs to the worst weights nearby, takes the gradient there, and steps from where it was."""

    def __init__(self, named, optimizers, radius=0.05):
        self.named = list(named)
        self.optimizers, self.radius = optimizers, radius
        self.restore = {}
        self.count = 0

    @torch.no_grad()
    def climb(self):
        self.count += 1
        norm = torch.stack([p.grad.norm() for _, p in self.named]).norm()
        for name, parameter in self.named:
            self.restore[self.count, name] = parameter.detach().clone()
            parameter.add_(parameter.grad, alpha=self.radius / (norm.item() + 1e-12))

    @torch.no_grad()
    def back(self):
        for name, parameter in self.named:
            parameter.copy_(self.restore[self.count, name])

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, textures = network(), Textures(0)
    body = list(model[:-1].parameters())
    optimizers = [
        torch.optim.SGD(body, lr=0.05, momentum=0.9),
        torch.optim.AdamW(model[-1].parameters(), lr=2e-3),
    ]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS) for o in optimizers]
    aware = SharpnessAware(model.named_parameters(), optimizers)
    total = 0.0
    for step in range(STEPS):
        x, y = textures.batch()
        loss = nn.functional.cross_entropy(model(x), y)
        aware.zero_grad()
        loss.backward()
        if step >= PLAIN:
            aware.climb()
            aware.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            aware.back()
        aware.step()
        for schedule in schedules:
            schedule.step()
        total += loss.item()
        if step % 60 == 59:
            kind = "plain" if step < PLAIN else "sharpness-aware"
            print(f"step {step + 1}, {kind}: {total / 60:.3f}", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
