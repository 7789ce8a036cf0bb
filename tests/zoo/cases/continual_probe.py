"""Class-incremental training with a linear probe on the frozen penultimate layer.

Tasks arrive one after another. After every epoch of a task we fit a ridge probe
on the features of a fixed evaluation set, to watch how the representation drifts.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)

NUM_TASKS = 5
CLASSES_PER_TASK = 4
EPOCHS_PER_TASK = 6
DIM = 96
HIDDEN = 384


def make_task(task, n, generator):
    centers = torch.randn(CLASSES_PER_TASK, DIM, generator=torch.Generator().manual_seed(50 + task))
    y = torch.randint(0, CLASSES_PER_TASK, (n,), generator=generator)
    x = 0.2 * centers[y] + torch.randn(n, DIM, generator=generator)
    return x, y + task * CLASSES_PER_TASK


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.GELU())
            for _ in range(3)
        )
        self.head = nn.Linear(HIDDEN, NUM_TASKS * CLASSES_PER_TASK)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class FeatureTap:
    """Grabs the evaluation-mode output of one layer."""

    def __init__(self, layer):
        self.features = None
        layer.register_forward_hook(self._grab)

    def _grab(self, module, inputs, output):
        if not module.training:
            self.features = output.detach().clone()


@torch.no_grad()
def linear_probe(model, x, y, ridge=1e-1):
    was_training = model.training
    model.eval()
    tap = FeatureTap(model.blocks[-1])
    model(x)
    feats = tap.features
    model.train(was_training)
    half = len(x) // 2
    onehot = F.one_hot(y, NUM_TASKS * CLASSES_PER_TASK).float()
    gram = feats[:half].T @ feats[:half] + ridge * torch.eye(HIDDEN)
    weight = torch.linalg.solve(gram, feats[:half].T @ onehot[:half])
    pred = (feats[half:] @ weight).argmax(-1)
    return (pred == y[half:]).float().mean().item()


def ewc_penalty(model, anchors):
    if not anchors:
        return 0.0
    total = 0.0
    for name, p in model.named_parameters():
        mean, fisher = anchors[name]
        total = total + (fisher * (p - mean) ** 2).sum()
    return total


def consolidate(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return {n: (p.detach().clone(), p.grad.detach() ** 2) for n, p in model.named_parameters()}


def train_task(model, task, data, evaluation, anchors):
    x, y = data
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(EPOCHS_PER_TASK):
        order = torch.randperm(len(x))
        running, batches = 0.0, math.ceil(len(x) / 64)
        for idx in order.split(64):
            loss = F.cross_entropy(model(x[idx]), y[idx]) + 50.0 * ewc_penalty(model, anchors)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        probe = linear_probe(model, *evaluation)
        print(
            f"task {task} epoch {epoch} loss {running / batches:.3f} probe {probe:.3f}", flush=True
        )


gen = torch.Generator().manual_seed(11)
eval_parts = [make_task(t, 160, gen) for t in range(NUM_TASKS)]
eval_x = torch.cat([p[0] for p in eval_parts])
eval_y = torch.cat([p[1] for p in eval_parts])
shuffle = torch.randperm(len(eval_x), generator=gen)
evaluation_set = (eval_x[shuffle], eval_y[shuffle])

net = Backbone().train()
ewc_anchors = {}
for task_id in range(NUM_TASKS):
    task_data = make_task(task_id, 4000, gen)
    train_task(net, task_id, task_data, evaluation_set, ewc_anchors)
    ewc_anchors = consolidate(net, *task_data)
