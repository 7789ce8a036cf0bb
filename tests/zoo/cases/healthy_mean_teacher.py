"""Segments vessels with few labels: a mean teacher gives the rest, and its weight is raised slowly."""

import copy
import math

import torch
from torch import nn

STEPS, LABELLED, UNLABELLED, SIZE, WARMUP = 160, 3, 4, 56, 50


class Eyes:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def batch(self, count):
        ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        bend = 10 * torch.rand(count, 3, 1, 1, generator=self.random)
        begin = SIZE * torch.rand(count, 3, 1, 1, generator=self.random)
        course = begin + bend * torch.sin(xs / 9.0 + bend)
        vessels = ((ys - course).abs() < 1.8).any(1, keepdim=True).float()
        noise = torch.randn(vessels.shape, generator=self.random)
        return vessels * 0.8 + 0.7 * noise, vessels


def network(width=16):
    layers, inputs = [], 1
    for dilation in (1, 2, 4, 1):
        layers += [nn.Conv2d(inputs, width, 3, padding=dilation, dilation=dilation)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 1))


class Teacher:
    """An average of the student's weights, and of its buffers."""

    def __init__(self, student, decay):
        self.model = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay
        self.agreed = []

    @torch.no_grad()
    def follow(self, student, step):
        decay = min(self.decay, 1 - 1 / (step + 2))
        for mine, other in zip(self.model.parameters(), student.parameters(), strict=True):
            mine.lerp_(other, 1 - decay)
        for mine, other in zip(self.model.buffers(), student.buffers(), strict=True):
            mine.copy_(other)

    @torch.no_grad()
    def targets(self, x):
        return self.model(x + 0.1 * torch.randn_like(x)).sigmoid()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    eyes, student = Eyes(0), network()
    teacher = Teacher(student, 0.97)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for step in range(STEPS):
        x, truth = eyes.batch(LABELLED)
        loss = nn.functional.binary_cross_entropy_with_logits(student(x), truth)
        # More unlabelled pictures are taken in as the teacher gets better.
        share = math.exp(-5 * (1 - min(1.0, step / WARMUP)) ** 2)
        count = 1 + int(share * (UNLABELLED - 1))
        others, _ = eyes.batch(count)
        wanted = teacher.targets(others)
        given = student(others + 0.2 * torch.randn_like(others)).sigmoid()
        sure = (wanted - 0.5).abs() > 0.2
        consistency = ((given - wanted).square() * sure).sum() / sure.sum().clamp(min=1)
        optimizer.zero_grad(set_to_none=True)
        (loss + 2 * share * consistency).backward()
        optimizer.step()
        teacher.follow(student, step)
        teacher.agreed.append(sure.float().mean().item())
        if step % 40 == 39:
            agreed = sum(teacher.agreed) / len(teacher.agreed)
            print(f"step {step + 1}: {loss:.3f}, sure of {agreed:.2f}", flush=True)
            teacher.agreed.clear()


if __name__ == "__main__":
    main()
