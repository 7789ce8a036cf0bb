"""Segmentation of blobs: a validation gathers every probability map, then scores them together."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CLASSES, SIZE = 6, 48


def make_scenes(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    masks = np.zeros((n, SIZE, SIZE), np.int64)
    for mask in masks:
        for _ in range(5):
            cy, cx = rng.integers(0, SIZE, 2)
            ry, rx = rng.integers(4, 14, 2)
            mask[((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1] = rng.integers(1, CLASSES)
    tint = np.random.default_rng(7).normal(size=(CLASSES, 3))
    images = tint[masks] + rng.normal(0, 0.9, (*masks.shape, 3))
    return torch.from_numpy(images.astype("f4")).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(
        masks
    )


class SegNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.a = nn.Conv2d(3, width, 3, 1, 1)
        self.b = nn.Conv2d(width, width * 2, 3, 2, 1)
        self.c = nn.Conv2d(width * 2, width * 2, 3, 1, 1)
        self.out = nn.Conv2d(width * 3, CLASSES, 1)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.c(F.relu(self.b(a))))
        return self.out(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))


class SegmentationEvaluator:
    """Keeps what a validation predicts until it is summed up, as panoptic evaluators do."""

    outputs: list[dict[str, np.ndarray]] = []

    def __init__(self):
        self.scores = []

    def process(self, indices, probabilities, masks):
        for index, p, mask in zip(indices, probabilities, masks):
            self.outputs.append({"index": int(index), "p": p.numpy().copy(), "mask": mask.numpy()})

    def evaluate(self):
        p = np.stack([row["p"] for row in self.outputs])
        mask = np.stack([row["mask"] for row in self.outputs])
        guess = p.argmax(1)
        ious = []
        for c in range(CLASSES):
            union = ((guess == c) | (mask == c)).sum()
            ious.append(((guess == c) & (mask == c)).sum() / max(union, 1))
        sure, right = p.max(1).ravel(), (guess == mask).ravel()
        bins = np.clip((sure * 10).astype(int), 0, 9)
        error = sum(
            abs(sure[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean()
            for b in range(10)
            if (bins == b).any()
        )
        result = {"miou": float(np.mean(ious)), "ece": float(error)}
        self.scores.append(result)
        return result

    def reset(self):
        self.outputs.clear()


class Trainer:
    def __init__(self, train, valid, batch=12):
        self.train_data, self.valid_data, self.batch = train, valid, batch
        self.model = SegNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.evaluator = SegmentationEvaluator()
        self.losses = []

    def epoch(self):
        images, masks = self.train_data
        for rows in torch.randperm(len(images)).split(self.batch):
            x, y = images[rows], masks[rows]
            if torch.rand(()) < 0.5:
                x, y = x.flip(3), y.flip(2)
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        images, masks = self.valid_data
        for rows in torch.arange(len(images)).split(32):
            self.evaluator.process(rows, self.model(images[rows]).softmax(1), masks[rows])
        result = self.evaluator.evaluate()
        self.evaluator.reset()
        self.model.train()
        return result

    def fit(self, epochs):
        for number in range(epochs):
            self.epoch()
            result = self.validate()
            print(f"epoch {number}: loss {np.mean(self.losses[-40:]):.3f} {result}")


torch.manual_seed(0)
trainer = Trainer(make_scenes(720, 0), make_scenes(480, 1))
trainer.fit(9)
