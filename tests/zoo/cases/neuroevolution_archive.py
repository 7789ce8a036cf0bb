"""Evolves controllers of a swing, all of a generation at once by torch.func, with search for novelty."""

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

GENERATIONS, POPULATION, TIME, WIDTH, NEAREST = 60, 48, 60, 24, 5


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
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        models = [Controller() for _ in range(POPULATION)]
        stacked, _ = stack_module_state(models)
        self.parameters = {name: value.detach() for name, value in stacked.items()}
        self.spread = 0.12

    def next(self, fitness):
        elite = fitness.topk(POPULATION // 4).indices
        parents = elite[torch.randint(len(elite), (POPULATION,), generator=self.random)]
        parents[: len(elite)] = elite
        for name, value in self.parameters.items():
            noise = torch.randn(value.shape, generator=self.random)
            noise[: len(elite)] = 0
            self.parameters[name] = value[parents] + self.spread * noise
        self.spread = max(0.02, 0.98 * self.spread)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    skeleton = Controller().to("meta")
    evolution = Evolution(0)
    for generation in range(GENERATIONS):
        starts = torch.randn(24, 2, generator=random) * torch.tensor([1.0, 0.3])
        angles = rollouts(skeleton, evolution.parameters, starts)
        upright = -angles[..., -20:].cos().mean((1, 2))
        fitness = upright + 0.02 * novelty(behaviour(angles))
        evolution.next(fitness)
        if generation % 10 == 9:
            print(
                f"generation {generation + 1}: best {upright.max():.3f}, mean {upright.mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
