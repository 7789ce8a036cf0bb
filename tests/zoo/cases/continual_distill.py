"""Continual distillation: a student gets a fresh head for every new teacher."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
TASKS = 60
STEPS = 11
D = 128


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(D, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head = None

    def new_head(self, n_out):
        self.head = nn.Sequential(nn.Linear(256, 160), nn.GELU(), nn.Linear(160, n_out))
        return self.head

    def forward(self, x):
        return self.head(self.trunk(x))


def make_teacher(task):
    g = torch.Generator().manual_seed(1000 + task)
    w1 = torch.randn(D, 64, generator=g) / D**0.5
    w2 = torch.randn(64, 20, generator=g)
    return lambda x: F.relu(x @ w1) @ w2


def distill_loss(student_logits, teacher_logits, temperature=2.0):
    p = F.log_softmax(student_logits / temperature, dim=1)
    q = F.softmax(teacher_logits / temperature, dim=1)
    return F.kl_div(p, q, reduction="batchmean") * temperature**2


class Distiller:
    def __init__(self):
        self.student = Student()
        self.opt = torch.optim.Adam(self.student.trunk.parameters(), lr=1e-3)
        self.agreement = 0.0

    def start_task(self):
        head = self.student.new_head(20)
        self.opt.add_param_group({"params": list(head.parameters()), "lr": 3e-3})

    def train_task(self, teacher, gen):
        for _ in range(STEPS):
            x = torch.randn(128, D, generator=gen)
            with torch.no_grad():
                target = teacher(x)
            loss = distill_loss(self.student(x), target)
            self.student.zero_grad()
            loss.backward()
            self.opt.step()
        with torch.no_grad():
            x = torch.randn(512, D, generator=gen)
            self.agreement = (
                (self.student(x).argmax(1) == teacher(x).argmax(1)).float().mean().item()
            )
        return loss.item()


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(6)
    distiller = Distiller()
    start = time.time()
    for task in range(TASKS):
        teacher = make_teacher(task)
        distiller.start_task()
        loss = distiller.train_task(teacher, gen)
        if task % 6 == 0:
            print(f"task {task} loss {loss:.4f} agreement {distiller.agreement:.3f}", flush=True)
    print(f"{TASKS} tasks in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
