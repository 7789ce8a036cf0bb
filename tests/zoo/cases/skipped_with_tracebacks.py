"""Anchor-free detector on synthetic shapes; samples that cannot be assigned are skipped and
reported at the end.
"""

import collections
import logging
import random

import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("detector")

IMG, STRIDE, BATCH = 48, 4, 6
EPOCHS, TRAIN_STEPS, VAL_STEPS = 10, 220, 20


class AssignmentError(ValueError):
    def __init__(self, sample, reason):
        super().__init__(f"sample {sample}: {reason}")
        self.sample = sample


def make_batch(rng):
    images = torch.rand(BATCH, 3, IMG, IMG) * 0.3
    boxes = []
    for i in range(BATCH):
        # some annotations are degenerate, as in every real data set
        w, h = rng.randint(6, 20), rng.randint(6, 20)
        if rng.random() < 0.007:
            w = 0
        x, y = rng.randint(0, IMG - 21), rng.randint(0, IMG - 21)
        images[i, :, y : y + h, x : x + max(w, 1)] += 0.6
        boxes.append((x, y, x + w, y + h))
    return images, boxes


class Backbone(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.head = nn.Conv2d(width, 5, 3, padding=1)

    def forward(self, x):
        return self.head(F.silu(self.mid(F.silu(self.stem(x)))))


class Skipped:
    """Keeps what went wrong by kind of error, for the summary."""

    def __init__(self):
        self.by_kind = collections.defaultdict(list)

    def note(self, error):
        self.by_kind[type(error).__name__].append(error)  # feeds

    def summary(self):
        return ", ".join(f"{len(v)} × {k}" for k, v in self.by_kind.items()) or "none"


def assign(boxes, size):
    target = torch.zeros(len(boxes), 5, size, size)
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        if x1 <= x0 or y1 <= y0:
            raise AssignmentError(i, "box without area")
        cx, cy = (x0 + x1) // (2 * STRIDE), (y0 + y1) // (2 * STRIDE)
        target[i, 0, cy, cx] = 1.0
        target[i, 1:, cy, cx] = torch.tensor([x0, y0, x1, y1]) / IMG
    return target


def detection_loss(prediction, target):
    objectness = F.binary_cross_entropy_with_logits(prediction[:, 0], target[:, 0])
    mask = target[:, :1]
    return objectness + (
        (prediction[:, 1:].sigmoid() - target[:, 1:]).abs() * mask
    ).sum() / mask.sum().clamp(min=1)


class DetectorTraining:
    def __init__(self):
        self.rng = random.Random(3)
        self.model = Backbone()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.skipped = Skipped()

    def forward_loss(self, images, boxes):
        prediction = self.model(images)
        target = assign(boxes, prediction.shape[-1])
        return detection_loss(prediction, target)

    def train_epoch(self):
        self.model.train()
        for _ in range(TRAIN_STEPS):
            images, boxes = make_batch(self.rng)
            try:
                loss = self.forward_loss(images, boxes)
            except AssignmentError as error:
                self.skipped.note(error)
                continue
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        peak = 0.0
        for _ in range(VAL_STEPS):
            images, _ = make_batch(self.rng)
            peak = max(peak, self.model(images)[:, 0].sigmoid().max().item())
        return peak


if __name__ == "__main__":
    torch.manual_seed(0)
    job = DetectorTraining()
    for epoch in range(EPOCHS):
        job.train_epoch()
        log.info(
            "epoch %d best objectness %.3f skipped %s", epoch, job.validate(), job.skipped.summary()
        )
