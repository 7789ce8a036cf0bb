"""Meta-learns from episodes of several kinds; the type of each task is made when it is drawn."""

import torch
from torch import nn

EPISODES, WAYS, SHOTS, QUERIES, FEATURES, WIDTH = 450, 6, 5, 10, 64, 128


class Task:
    """A kind of task; types of tasks are known by their name, to be made from a log."""

    registry = {}

    def __init_subclass__(cls, **parts):
        super().__init_subclass__(**parts)
        Task.registry[cls.__name__] = cls

    def __init__(self, random):
        self.random = random

    def draw(self, count):
        labels = torch.arange(self.ways).repeat_interleave(count)
        noise = torch.randn(len(labels), FEATURES, generator=self.random)
        return self.distort(self.centres[labels] + noise), labels

    def distort(self, x):
        return x


class Rotated(Task):
    def distort(self, x):
        return x @ self.turn


class Masked(Task):
    def distort(self, x):
        return x * self.mask


def make(kind, number, random):
    """Return a task type: a kind of task with what is its own."""
    parts = {
        "ways": WAYS,
        "centres": 1.2 * torch.randn(WAYS, FEATURES, generator=random),
    }
    if kind is Rotated:
        parts["turn"] = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=random)).Q
    else:
        parts["mask"] = (torch.rand(64, FEATURES, generator=random) < 0.7).float()[0]
    return type(f"{kind.__name__}{number}", (kind,), parts)


class Prototypes(nn.Module):
    """Embeds samples; queries belong to the nearest mean of a class."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64),
        )  # fmt: skip
        self.scale = nn.ParameterDict({"Rotated": torch.tensor(0.1), "Masked": torch.tensor(0.1)})

    def forward(self, kind, support, labels, queries):
        means = torch.zeros(WAYS, 64).index_add(0, labels, self.body(support)) / SHOTS
        return -self.scale[kind] * torch.cdist(self.body(queries), means) ** 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    model = Prototypes()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    right = {"Rotated": [], "Masked": []}
    for episode in range(EPISODES):
        optimizer.zero_grad(set_to_none=True)
        for kind in (Rotated, Masked):
            for _ in range(2):
                task = make(kind, f"{episode}_{_}", random)(random)
                support, labels = task.draw(SHOTS)
                queries, wanted = task.draw(QUERIES)
                logits = model(kind.__name__, support, labels, queries)
                loss = nn.functional.cross_entropy(logits, wanted)
                (loss / 4).backward()
                right[kind.__name__].append((logits.argmax(1) == wanted).float().mean().item())
        optimizer.step()
        if episode % 50 == 49:
            shares = {name: sum(some) / len(some) for name, some in right.items()}
            print(f"episode {episode + 1}: {shares}", flush=True)
            right = {name: [] for name in right}


if __name__ == "__main__":
    main()
