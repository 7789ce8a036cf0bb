"""Evolves a controller of a swing by torch.func, a generation at once, with search for novelty."""

import torch
from torch import nn
from torch.func import functional_call, vmap

GENERATIONS, POPULATION, TIME, WIDTH, NEAREST = 150, 48, 60, 24, 5


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1), nn.Tanh())

    def forward(self, state):
        angle, speed = state.unbind(-1)
        return self.body(torch.stack([angle.sin(), angle.cos(), speed], -1)).squeeze(-1)


def rollouts(skeleton, parameters, starts):
    """Return the angles of each controller over time, from each of the starts."""

    def act(parameters, state):
        return functional_call(skeleton, parameters, (state,))

    state = starts.expand(POPULATION, -1, -1)
    seen = []
    for _ in range(TIME):
        push = vmap(act)(parameters, state)
        angle, speed = state.unbind(-1)
        speed = 0.99 * speed + 0.12 * angle.sin() + 0.08 * push
        angle = angle + 0.2 * speed
        state = torch.stack([angle, speed.clamp(-4, 4)], -1)
        seen.append(angle)
    return torch.stack(seen, -1)


def behaviour(angles):
    """Describe what a controller did: where it was, smoothed, for each start."""
    return nn.functional.avg_pool1d(angles.cos(), 3).flatten(1)


def novelty(described, archive=[]):
    """Return how far each is from the nearest that were met; all are met then."""
    if archive:
        known = torch.cat(archive[-20:])
        distance = torch.cdist(described, known).topk(NEAREST, largest=False).values.mean(1)
    else:
        distance = torch.ones(len(described))
    archive.append(described)
    return distance


class Evolution:
    """Draws controllers around a mean, which follows those that did well."""

    def __init__(self, seed, spread=0.1):
        self.random = torch.Generator().manual_seed(seed)
        self.mean = Controller()
        self.optimizer = torch.optim.Adam(self.mean.parameters(), lr=0.03)
        self.spread, self.noise = spread, {}

    def draw(self):
        for name, value in self.mean.named_parameters():
            half = torch.randn(POPULATION // 2, *value.shape, generator=self.random)
            self.noise[name] = torch.cat([half, -half])
        return {
            name: value + self.spread * self.noise[name]
            for name, value in self.mean.named_parameters()
        }

    def follow(self, fitness):
        ranks = fitness.argsort().argsort() / (len(fitness) - 1) - 0.5
        for name, value in self.mean.named_parameters():
            value.grad = -torch.einsum("p,p...->...", ranks, self.noise[name]) / POPULATION
        self.optimizer.step()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    skeleton = Controller().to("meta")
    evolution = Evolution(0)
    for generation in range(GENERATIONS):
        starts = torch.randn(24, 2, generator=random) * torch.tensor([1.0, 0.3])
        angles = rollouts(skeleton, evolution.draw(), starts)
        upright = -angles[..., -20:].cos().mean((1, 2))
        fitness = upright + 0.02 * novelty(behaviour(angles))
        evolution.follow(fitness)
        if generation % 10 == 9:
            print(
                f"generation {generation + 1}: best {upright.max():.3f}, mean {upright.mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
