"""Distil a frozen teacher into a small student on augmented views of procedurally drawn images.

The teacher is only ever asked for soft labels, so the dataset runs it itself, in the loader workers.
"""

import math
import random
from argparse import ArgumentParser

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
SIDE = 48
OVERSAMPLE = 4
CROP = 32


def draw(index):
    rng = np.random.default_rng(index)
    full = SIDE * OVERSAMPLE
    yy, xx = np.mgrid[0:full, 0:full] / full
    label = index % CLASSES
    angle = math.pi * label / CLASSES
    wave = np.sin(18 * (xx * math.cos(angle) + yy * math.sin(angle)) + rng.uniform(0, 6))
    rgb = wave[None] * rng.uniform(0.4, 1.0, (3, 1, 1)) + rng.normal(0, 1.0, (3, full, full))
    rgb = rgb.reshape(3, SIDE, OVERSAMPLE, SIDE, OVERSAMPLE).mean((2, 4))
    return rgb.astype(np.float32), label


class Teacher(nn.Module):
    """Oriented filter bank, stands in for the big network."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.bank = nn.Parameter(torch.randn(CLASSES, 3 * 8 * 8, generator=g), requires_grad=False)

    def forward(self, crop):
        patches = F.unfold(crop[None], 8, stride=4)[0]
        return (self.bank @ patches).abs().mean(1)


class DistillationViews(Dataset):
    def __init__(self, size, train, teacher):
        self.size = size
        self.train = train
        self.teacher = teacher
        self.offset = 0 if train else 1_000_000
        self.view_cache = {}

    def __len__(self):
        return self.size

    def sample_window(self):
        if not self.train:
            return 8, 8, False, 1.0
        top, left = random.randint(0, SIDE - CROP), random.randint(0, SIDE - CROP)
        return top, left, random.random() < 0.5, random.uniform(0.8, 1.2)

    def view(self, index, window):
        key = (index, *window)
        if key not in self.view_cache:
            image, label = draw(index + self.offset)
            top, left, flip, gain = window
            crop = np.float32(gain) * image[:, top : top + CROP, left : left + CROP]
            crop = torch.from_numpy(np.ascontiguousarray(crop[:, :, ::-1] if flip else crop))
            with torch.no_grad():
                soft = self.teacher(crop)
            self.view_cache[key] = (crop, soft, label)
        return self.view_cache[key]

    def __getitem__(self, index):
        return self.view(index, self.sample_window())


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)
    torch.set_num_threads(1)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 5, stride=2)
        self.head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(32 * 196, 64), nn.ReLU())
        self.label, self.soft = nn.Linear(64, CLASSES), nn.Linear(64, CLASSES)

    def forward(self, x):
        h = self.head(self.stem(x))
        return self.label(h), self.soft(h)


def run(args):
    torch.manual_seed(args.seed)
    teacher = Teacher().eval()
    loaders = {
        phase: DataLoader(
            DistillationViews(n, phase == "train", teacher),
            batch_size=16,
            shuffle=phase == "train",
            num_workers=workers,
            persistent_workers=workers > 0,
            worker_init_fn=seed_worker,
        )
        for phase, n, workers in (("train", args.images, args.workers), ("valid", 128, 0))
    }
    student = Student()
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        student.train()
        for crops, soft, labels in loaders["train"]:
            logits, guess = student(crops)
            loss = F.cross_entropy(logits, labels) + F.mse_loss(guess, soft / 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        student.eval()
        with torch.no_grad():
            right = sum((student(c)[0].argmax(1) == y).sum().item() for c, _, y in loaders["valid"])
        print(f"epoch {epoch:02d} loss {loss.item():.3f} valid {right / 128:.3f}", flush=True)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=16)
    run(parser.parse_args())
