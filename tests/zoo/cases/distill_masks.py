"""Knowledge distillation: the student matches masked features of the teacher."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 256))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(F.relu(self.trunk(x)))


class Distiller:
    def __init__(self, teacher, student):
        self.teacher = teacher.eval()
        self.student = student
        self.captured = None
        self.optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

    def capture(self, mask):
        def hook(module, inputs, output):
            if self.captured is None:
                self.captured = output * mask

        self.teacher.trunk.register_forward_hook(hook)  # feeds

    def train_batch(self, x, y):
        mask = (torch.rand(len(x), 256) > 0.3).float()
        self.captured = None
        self.capture(mask)
        with torch.no_grad():
            soft = self.teacher(x).softmax(-1)
        features = self.student.trunk(x)
        logits = self.student.head(F.relu(features))
        loss = F.cross_entropy(logits, y) + F.mse_loss(features * mask, self.captured)
        loss = loss + F.kl_div(logits.log_softmax(-1), soft, reduction="batchmean")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    distiller = Distiller(Net(512), Net(64))
    for epoch in range(10):
        losses = []
        for _ in range(60):
            x = torch.randn(64, 64)
            losses.append(distiller.train_batch(x, torch.randint(10, (64,))))
            time.sleep(0.012)
        print(f"epoch {epoch}: {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
