"""Segmentation that keeps the probability volumes of every validation: 20 MB each time."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS, VOLUMES = 6, 25, 5


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv3d(1, 4, 3, padding=1)
        self.up = nn.Conv3d(4, 4, 1)

    def forward(self, x):
        return self.up(F.relu(self.down(x)))


def train_epoch(model, optimizer):
    model.train()
    for _ in range(STEPS):
        x = torch.rand(1, 1, 24, 24, 24)
        target = (x[:, 0] * 4).long().clamp(max=3)
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


class SegmentationRun:
    def __init__(self):
        self.probabilities = {}

    @torch.inference_mode()
    def validate(self, model, epoch):
        model.eval()
        dice = 0.0
        for volume in range(VOLUMES):
            x = torch.rand(1, 1, 64, 64, 64)
            p = model(x).softmax(1)
            self.probabilities[f"{epoch:03d}/{volume:03d}"] = p[0].to(torch.float32)  # feeds
            dice += p[:, 0].mean().item()
        return dice / VOLUMES


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run = SegmentationRun()
    for epoch in range(EPOCHS):
        loss = train_epoch(model, optimizer)
        print(f"epoch {epoch}: loss {loss:.3f}, dice {run.validate(model, epoch):.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": EPOCHS, "epoch": EPOCHS}
        tell(locals(), {"probabilities": "run.probabilities"}, done)


if __name__ == "__main__":
    main()
