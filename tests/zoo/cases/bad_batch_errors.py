"""Segmentation training that survives bad batches: errors are collected for a report."""

import time

import torch
import torch.nn as nn


class BadBatch(ValueError):
    pass


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 1, 2, stride=2)

    def forward(self, x):
        return self.up(torch.relu(self.mid(torch.relu(self.down(x)))))


class RobustTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.skipped = []

    def check(self, loss, logits):
        if not torch.isfinite(loss):
            raise BadBatch(f"loss is {loss.item()}, logits reach {logits.abs().max().item():.1f}")

    def forward_backward(self, images, masks):
        logits = self.model(images)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, masks)
        self.check(loss, logits)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train_step(self, step, images, masks):
        try:
            return self.forward_backward(images, masks)
        except BadBatch as error:
            self.skipped.append((step, error))  # feeds
            return None


def load(step):
    images = torch.rand(12, 3, 64, 64)
    masks = (images.mean(1, keepdim=True) > 0.5).float()
    if step % 12 == 7:
        images[0, 0, 0, 0] = float("nan")
    time.sleep(0.01)
    return images, masks


def main():
    torch.manual_seed(0)
    trainer = RobustTrainer(Segmenter())
    for step in range(700):
        loss = trainer.train_step(step, *load(step))
        if step % 100 == 0:
            print("step", step, "loss", loss)
    print(len(trainer.skipped), "bad batches, first:", trainer.skipped[0][0], trainer.skipped[0][1])


if __name__ == "__main__":
    main()
