"""Meta-learning with second-order gradients, which keeps the tasks' losses with their graphs.

After https://github.com/myungsub/meta-interpolation/issues/4.
"""

import os

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

ITERATIONS, TASKS = 150, 3


class MetaLearner:
    def __init__(self, net, inner_lr=0.05):
        self.net = net
        self.inner_lr = inner_lr
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.stats = {"losses": [], "accuracy": []}

    def adapt(self, x, y):
        weights = dict(self.net.named_parameters())
        loss = F.mse_loss(functional_call(self.net, weights, (x,)), y)
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        return {
            name: weight - self.inner_lr * grad
            for (name, weight), grad in zip(weights.items(), grads, strict=True)
        }

    def meta_step(self, tasks):
        total = 0.0
        for (xs, ys), (xq, yq) in tasks:
            fast = self.adapt(xs, ys)
            loss = F.mse_loss(functional_call(self.net, fast, (xq,)), yq)
            total = total + loss / len(tasks)
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        probe = self.adapt(*tasks[0][0])
        with torch.enable_grad():
            after = F.mse_loss(functional_call(self.net, probe, (tasks[0][1][0],)), tasks[0][1][1])
        self.stats["losses"].append(after)  # feeds
        return total.item()


def sine_task(generator):
    phase = torch.rand(1, generator=generator) * 3.14
    x = torch.rand(50, 1, generator=generator) * 10 - 5
    y = torch.sin(x + phase)
    return (x[:10], y[:10]), (x[10:], y[10:])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 80), nn.Tanh(), nn.Linear(80, 80), nn.Tanh(), nn.Linear(80, 1))
    learner = MetaLearner(net)
    for iteration in range(ITERATIONS):
        loss = learner.meta_step([sine_task(generator) for _ in range(TASKS)])
        if iteration % 30 == 0:
            print(f"iteration {iteration}: {loss:.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "freed(lambda: learner.stats['losses'].clear())"
        tell(locals(), {"losses": kept}, {"step": ITERATIONS})


if __name__ == "__main__":
    main()
