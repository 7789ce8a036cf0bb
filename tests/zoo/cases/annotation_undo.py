"""A session in which a person corrects masks that a model proposes; each stroke can be undone."""

import random
import time

import numpy as np
import torch
from torch import nn

SECONDS, STROKES_PER_SECOND, SIZE, PER_PICTURE = 13, 18, 224, 24


class Proposer(nn.Module):
    """Proposes where leaves are, and learns from corrections."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 5, 4, 2), nn.ReLU(), nn.Conv2d(12, 12, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(12, 1, 1), nn.Upsample(scale_factor=4, mode="bilinear"),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.body.parameters(), lr=2e-3)

    def propose(self, picture):
        with torch.no_grad():
            return self.body(picture[None])[0, 0].sigmoid().numpy() > 0.5

    def learn(self, picture, mask):
        wanted = torch.from_numpy(mask.astype(np.float32))[None, None]
        loss = nn.functional.binary_cross_entropy_with_logits(self.body(picture[None]), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class History:
    """What to call to undo each action, the latest last."""

    def __init__(self):
        self.undo = []

    def record(self, action):
        self.undo.append(action)

    def back(self):
        if self.undo:
            self.undo.pop()()


class Canvas:
    """The mask of the picture at hand."""

    def __init__(self, history):
        self.history = history
        self.mask = np.zeros((SIZE, SIZE), bool)

    def show(self, mask):
        self.mask = mask.copy()

    def stroke(self, middle, radius, value):
        ys, xs = np.ogrid[:SIZE, :SIZE]
        before = self.mask.copy()

        def restore():
            self.mask = before

        self.history.record(restore)
        self.mask[(ys - middle[0]) ** 2 + (xs - middle[1]) ** 2 < radius**2] = value


def picture(random_):
    """Return a picture with leaves, and where they are."""
    mask = np.zeros((SIZE, SIZE), bool)
    ys, xs = np.ogrid[:SIZE, :SIZE]
    for _ in range(5):
        y, x, a, b = random_.integers([20, 20, 10, 20], [200, 200, 25, 45])
        mask |= ((ys - y) / a) ** 2 + ((xs - x) / b) ** 2 < 1
    pixels = random_.normal(0.4, 0.2, (3, SIZE, SIZE)).astype(np.float32)
    pixels[1] += 0.4 * mask
    return torch.from_numpy(pixels), mask


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, random_ = random.Random(0), np.random.default_rng(0)
    proposer, history = Proposer(), History()
    canvas, begun, undone = Canvas(history), time.monotonic(), 0
    for stroke in range(SECONDS * STROKES_PER_SECOND):
        time.sleep(max(0.0, begun + stroke / STROKES_PER_SECOND - time.monotonic()))
        if stroke % PER_PICTURE == 0:
            shown, truth = picture(random_)
            canvas.show(proposer.propose(shown))
        wrong = np.argwhere(canvas.mask != truth)
        place = wrong[dice.randrange(len(wrong))] if len(wrong) else (SIZE // 2, SIZE // 2)
        canvas.stroke(place, dice.randrange(4, 12), truth[tuple(place)])
        if dice.random() < 0.1:
            history.back()
            undone += 1
        if stroke % PER_PICTURE == PER_PICTURE - 1:
            loss = proposer.learn(shown, canvas.mask)
            print(f"{stroke + 1} strokes, {undone} undone, loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
