"""Estimates depth from pairs of pictures that a thread draws ahead, into buffers that go round."""

import queue
import threading

import torch
from torch import nn

STEPS, BATCH, SIZE, MOST, AHEAD = 140, 8, 64, 8, 5


class Scenes:
    """Textured planes seen from two places; what is nearer moves by more."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def fill(self, pictures, depth):
        for row in range(BATCH):
            texture = torch.rand(SIZE, SIZE + MOST, generator=self.random)
            shift = torch.randint(0, MOST, (4,), generator=self.random).tolist()
            for part, amount in enumerate(shift):
                rows = slice(part * SIZE // 4, (part + 1) * SIZE // 4)
                pictures[row, 0, rows] = texture[rows, :SIZE]
                pictures[row, 1, rows] = texture[rows, amount : amount + SIZE]
                depth[row, rows] = amount


class Prefetcher(threading.Thread):
    """Fills buffers ahead of the loop, which gives each back when it has been used."""

    def __init__(self, scenes, steps):
        super().__init__(daemon=True)
        self.scenes, self.steps = scenes, steps
        self.free, self.full = queue.Queue(), queue.Queue(maxsize=AHEAD)
        for _ in range(AHEAD + 1):
            self.free.put(
                (
                    torch.empty(BATCH, 2, SIZE, SIZE),
                    torch.empty(BATCH, SIZE, SIZE, dtype=torch.long),
                )
            )

    def run(self):
        for _ in range(self.steps):
            buffers = self.free.get()
            self.scenes.fill(*buffers)
            self.full.put(buffers)
        self.full.put(None)

    def __iter__(self):
        while (buffers := self.full.get()) is not None:
            yield buffers
            self.free.put(buffers)


class Stereo(nn.Module):
    """Compares features at every shift."""

    def __init__(self, width=12):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.out = nn.Conv2d(MOST, MOST, 3, padding=1)

    def forward(self, pictures):
        both = self.features(pictures.flatten(0, 1)[:, None]).unflatten(0, (-1, 2))
        first, second = both[:, 0], both[:, 1]
        scores = [(first * second.roll(shift, -1)).mean(1) for shift in range(MOST)]
        return self.out(torch.stack(scores, 1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Stereo()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    prefetcher = Prefetcher(Scenes(0), STEPS)
    prefetcher.start()
    total = right = 0.0
    for step, (pictures, depth) in enumerate(prefetcher):
        logits = model(pictures)
        loss = nn.functional.cross_entropy(logits, depth)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
        right += (logits.argmax(1) == depth).float().mean().item()
        if step % 40 == 39:
            print(f"step {step + 1}: {total / 40:.3f}, {right / 40:.3f} right", flush=True)
            total = right = 0.0
    prefetcher.join()


if __name__ == "__main__":
    main()
