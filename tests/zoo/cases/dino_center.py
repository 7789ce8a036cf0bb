"""Self-distillation without labels on vectors: student, EMA teacher, centring of the teacher's
outputs.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Projector(nn.Module):
    def __init__(self, dim_in=96, hidden=192, dim_out=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(dim_in, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()
        )
        self.last = nn.Linear(hidden, dim_out, bias=False)

    def forward(self, x):
        return self.last(F.normalize(self.body(x), dim=-1))


class Centering:
    """Moving average of what the teacher says, subtracted before its softmax."""

    def __init__(self, dim, momentum=0.95):
        self.momentum = momentum
        self.mean = torch.zeros(1, dim)

    def update(self, outputs):
        self.mean = self.momentum * self.mean + (1 - self.momentum) * outputs.mean(  # feeds
            0, keepdim=True
        )


class SelfDistillation:
    def __init__(self, student_temp=0.1, teacher_temp=0.04, ema=0.99):
        self.student = Projector()
        self.teacher = copy.deepcopy(self.student)
        self.centering = Centering(64)
        self.student_temp, self.teacher_temp, self.ema = student_temp, teacher_temp, ema
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=5e-4)

    def loss(self, view_a, view_b):
        student = F.log_softmax(self.student(view_a) / self.student_temp, dim=-1)
        outputs = self.teacher(view_b)
        target = F.softmax((outputs - self.centering.mean) / self.teacher_temp, dim=-1).detach()
        self.centering.update(outputs)
        return -(target * student).sum(-1).mean()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - self.ema)

    def step(self, view_a, view_b):
        loss = self.loss(view_a, view_b)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.follow()
        return loss.item()


@torch.no_grad()
def knn_accuracy(encoder, bank, bank_y, queries, query_y, k=5):
    keys = F.normalize(encoder(bank), dim=-1)
    hits = 0
    for q, y in zip(queries.split(50), query_y.split(50)):
        near = (F.normalize(encoder(q), dim=-1) @ keys.T).topk(k).indices
        hits += (bank_y[near].mode(-1).values == y).sum().item()
    return hits / len(queries)


def views(x):
    return x + 0.3 * torch.randn_like(x), x * (torch.rand_like(x) > 0.15)


def main(epochs=11, steps=240, batch=12):
    torch.manual_seed(8)
    centres = torch.randn(10, 96)
    label = torch.randint(10, (3000,))
    data = centres[label] + 0.8 * torch.randn(3000, 96)
    algorithm = SelfDistillation()
    for epoch in range(epochs):
        total = 0.0
        for _ in range(steps):
            rows = torch.randint(2000, (batch,))
            total += algorithm.step(*views(data[rows]))
        score = knn_accuracy(
            algorithm.student, data[:2000], label[:2000], data[2000:], label[2000:]
        )
        print(f"epoch {epoch} loss {total / steps:.3f} knn {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
