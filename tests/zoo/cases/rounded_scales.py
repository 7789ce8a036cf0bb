"""Trains a detector of text lines at many sizes with weights that are rounded by a learned rule."""

import random

import torch
from torch import nn

STEPS, CHANNELS, SIZES = 320, 16, (40, 80, 120, 160)


class LearnedRound(torch.autograd.Function):
    """Rounds to steps of a learned width; gradients pass where nothing was cut off."""

    @staticmethod
    def forward(ctx, x, width, bits):
        limit = 2 ** (bits - 1) - 1
        scaled = x / width
        rounded = scaled.round().clamp(-limit, limit)
        ctx.limit = limit
        ctx.save_for_backward(x, width, rounded)
        return rounded * width

    @staticmethod
    def backward(ctx, grad):
        x, width, rounded = ctx.saved_tensors
        inside = rounded.abs() < ctx.limit
        grad_width = (grad * torch.where(inside, rounded - x / width, rounded)).sum()
        return grad * inside, grad_width.view_as(width), None


class RoundedConv(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.norm = nn.BatchNorm2d(outputs)
        self.width = nn.Parameter(torch.tensor(0.02))
        self.gain = nn.Parameter(torch.ones(outputs, 1, 1, 1))
        self.lost = 0.0

    def watch(self, weight):
        """Return a hook that notes how much of the gradient meets weights at their limit."""

        def note(_grad_inputs, grad_outputs):
            at_limit = weight.detach().abs() >= 14.5 * self.width.detach()
            share = (grad_outputs[0] * at_limit).abs().sum() / grad_outputs[0].abs().sum()
            self.lost = 0.9 * self.lost + 0.1 * share.item()

        return note

    def forward(self, x):
        weight = LearnedRound.apply(self.conv.weight, self.width, 5) * self.gain
        if weight.requires_grad:
            weight.grad_fn.register_hook(self.watch(weight))
        x = nn.functional.conv2d(x, weight, self.conv.bias, self.conv.stride, self.conv.padding)
        return self.norm(x).relu()


class LineDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            RoundedConv(1, CHANNELS, 2), RoundedConv(CHANNELS, 2 * CHANNELS, 2),
            RoundedConv(2 * CHANNELS, 2 * CHANNELS),
        )  # fmt: skip
        self.out = nn.Conv2d(2 * CHANNELS, 1, 1)

    def forward(self, x):
        return self.out(self.body(x))


class Pages:
    """Pages of many sizes, with dark lines on them."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.random = torch.Generator().manual_seed(seed)

    def batch(self):
        height, width = self.dice.choice(SIZES), self.dice.choice(SIZES)
        count = self.dice.choice([4, 12])
        pages = 0.3 * torch.randn(count, 1, height, width, generator=self.random)
        wanted = torch.zeros(count, 1, height // 4, width // 4)
        for page, target in zip(pages, wanted, strict=True):
            for _ in range(3):
                row = 4 * self.dice.randrange(height // 4)
                left = 4 * self.dice.randrange(width // 8)
                page[:, row : row + 4, left:] -= 1.0
                target[:, row // 4, left // 4 :] = 1.0
        return pages, wanted


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, pages = LineDetector(), Pages(0)
    widths = [p for name, p in model.named_parameters() if name.endswith("width")]
    others = [p for name, p in model.named_parameters() if not name.endswith("width")]
    optimizer = torch.optim.Adam([{"params": others}, {"params": widths, "lr": 1e-4}], lr=2e-3)
    total = 0.0
    for step in range(STEPS):
        x, wanted = pages.batch()
        logits = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 40 == 39:
            lost = model.body[0].lost
            print(f"step {step + 1}: {total / 40:.3f}, {lost:.3f} at the limit", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
