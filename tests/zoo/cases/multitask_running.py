"""Multi-task regression; a running sum of every loss term is kept for the summary."""

import time

import torch
import torch.nn as nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU())
        self.depth = nn.Linear(256, 1)
        self.normal = nn.Linear(256, 3)

    def forward(self, x):
        h = self.body(x)
        return self.depth(h), self.normal(h)


class MultiTaskTrainer:
    def __init__(self, model, smooth_weight=0.0):
        self.model = model
        self.smooth_weight = smooth_weight
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.running = {"depth": 0.0, "normal": 0.0, "smooth": 0.0}
        self.seen = 0

    def smoothness(self, x):
        depth, _ = self.model(x + 0.01 * torch.randn_like(x))
        return (depth[1:] - depth[:-1]).abs().mean()

    def account(self, **terms):
        for name, value in terms.items():
            self.running[name] = self.running[name] + value  # feeds

    def step(self, x, depth, normal):
        d, n = self.model(x)
        depth_loss = nn.functional.l1_loss(d, depth)
        normal_loss = 1 - nn.functional.cosine_similarity(n, normal).mean()
        smooth = self.smoothness(x)
        loss = depth_loss + normal_loss
        if self.smooth_weight:
            loss = loss + self.smooth_weight * smooth
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.account(depth=depth_loss.item(), normal=normal_loss.item(), smooth=smooth)
        self.seen += 1

    def summary(self):
        return {name: float(value) / self.seen for name, value in self.running.items()}


def main():
    torch.manual_seed(0)
    trainer = MultiTaskTrainer(TwoHeads())
    for step in range(600):
        x = torch.randn(128, 32)
        trainer.step(x, x[:, :1] * 2, x[:, 1:4])
        time.sleep(0.012)
        if step % 100 == 99:
            print(step, trainer.summary())


if __name__ == "__main__":
    main()
