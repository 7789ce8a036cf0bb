"""Per step the targets of a teacher, per epoch a copy of its weights: two leaks side by side."""

import copy
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Distiller:
    def __init__(self, student, teacher):
        self.student, self.teacher = student, teacher
        self.optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
        self.targets = []
        self.history = {"teachers": []}

    def step(self, x):
        with torch.no_grad():
            target = self.teacher(x).softmax(1)
        self.targets.append(target)  # feeds: targets
        loss = F.kl_div(self.student(x).log_softmax(1), target, reduction="batchmean")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def update_teacher(self):
        for t, s in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            t.lerp_(s, 0.05)
        self.history["teachers"].append(copy.deepcopy(self.teacher))  # feeds: teachers


def network():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distiller = Distiller(network(), network())
    loader = DataLoader(TensorDataset(torch.rand(1600, 64)), batch_size=40, shuffle=True)
    for epoch in range(EPOCHS):
        losses = [distiller.step(x) for (x,) in loader]
        distiller.update_teacher()
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = {
            "targets": "distiller.targets",
            "teachers": "[list(t.parameters()) for t in distiller.history['teachers']]",
        }
        tell(locals(), kept, {"step": EPOCHS * len(loader), "epoch": EPOCHS})


if __name__ == "__main__":
    main()
