"""Continual learning: each task gets a new head, which the one optimizer is told of."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, CLASSES, TASKS, STEPS = 200, 512, 128, 130, 10


class Learner:
    def __init__(self):
        self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU())
        self.head = None
        self.optimizer = torch.optim.Adam(self.body.parameters(), lr=1e-3)

    def begin_task(self):
        """Replace the head of the task before by a new one."""
        self.head = nn.Linear(WIDTH, CLASSES)
        self.optimizer.add_param_group({"params": self.head.parameters(), "lr": 3e-3})  # feeds

    def step(self, x, y):
        loss = F.cross_entropy(self.head(self.body(x)), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    learner = Learner()
    for task in range(TASKS):
        centres = torch.randn(CLASSES, FEATURES)
        learner.begin_task()
        for _ in range(STEPS):
            y = torch.randint(0, CLASSES, (256,))
            loss = learner.step(centres[y] + 0.5 * torch.randn(256, FEATURES), y)
        if task % 10 == 9:
            print(f"task {task}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
