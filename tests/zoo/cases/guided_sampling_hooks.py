"""Trains a denoiser of small pictures; after each epoch samples are steered by its own features."""

import torch
from torch import nn

EPOCHS, STEPS, BATCH, SIZE, LEVELS, SAMPLES = 14, 14, 24, 24, 30, 10


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.level = nn.Embedding(LEVELS, 2 * width)
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.middle = nn.Sequential(
            nn.GroupNorm(4, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.last = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x, level):
        first = self.first(x)
        inner = self.down(first.relu()) + self.level(level)[:, :, None, None]
        inner = inner + self.middle(inner)
        return self.last(torch.cat([self.up(inner), first], 1).relu())


class Noise:
    """How much of a picture is left at each level."""

    def __init__(self):
        self.kept = (1 - torch.linspace(1e-3, 0.2, LEVELS)).cumprod(0)

    def add(self, x, noise, level):
        kept = self.kept[level].view(-1, 1, 1, 1)
        return kept.sqrt() * x + (1 - kept).sqrt() * noise


def pictures(count, random):
    """Return rings of some radius and place."""
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    middle = 8 + 8 * torch.rand(count, 2, 1, 1, generator=random)
    radius = 3 + 4 * torch.rand(count, 1, 1, generator=random)
    distance = ((ys - middle[:, 0]) ** 2 + (xs - middle[:, 1]) ** 2).sqrt()
    return (1 - (distance - radius).abs()).clamp(-1, 1)[:, None]


class Guidance:
    """Pulls features of the middle towards those of a reference while samples are drawn."""

    def __init__(self, model, reference, noise, strength=0.3):
        self.model, self.strength = model, strength
        self.wanted = self.features(reference, noise)
        self.drift = []

    def features(self, reference, noise):
        found = []
        handle = self.model.middle.register_forward_hook(lambda _m, _a, out: found.append(out))
        for level in range(LEVELS):
            levels = torch.full((len(reference),), level)
            self.model(noise.add(reference, torch.randn_like(reference), levels), levels)
        handle.remove()
        return [out.mean(0, keepdim=True) for out in found]

    def attach(self, level):
        wanted = self.wanted[level]

        def pull(_module, _arguments, out):
            if out.shape[1:] != wanted.shape[1:] or not self.active:
                return out
            self.drift.append((out - wanted).abs().mean().item())
            return out + self.strength * (wanted - out)

        self.active = True
        return self.model.middle.register_forward_hook(pull)


@torch.no_grad()
def sample(model, noise, random):
    reference = pictures(8, random)
    guidance = Guidance(model, reference, noise)
    x = torch.randn(SAMPLES, 1, SIZE, SIZE, generator=random)
    for level in reversed(range(LEVELS)):
        handle = guidance.attach(level)
        levels = torch.full((SAMPLES,), level)
        kept = noise.kept[level]
        clean = (x - (1 - kept).sqrt() * model(x, levels)) / kept.sqrt()
        guidance.active = False
        if level == 0:
            return clean.clamp(-1, 1), sum(guidance.drift) / len(guidance.drift)
        if level % 10:
            handle.remove()
        x = noise.add(clean.clamp(-1, 1), torch.randn_like(x), torch.tensor([level - 1]))
    return x, 0.0


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, noise = Denoiser(), Noise()
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            x = pictures(BATCH, random)
            level = torch.randint(LEVELS, (BATCH,), generator=random)
            added = torch.randn(x.shape, generator=random)
            loss = nn.functional.mse_loss(model(noise.add(x, added, level), level), added)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        drawn, drift = sample(model, noise, random)
        model.train()
        print(
            f"epoch {epoch}: {total / STEPS:.3f}, ink {drawn.mean():.3f}, drift {drift:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
