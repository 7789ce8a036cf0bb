"""Fits a network with L-BFGS: beartype 0.22.9 keeps the checked closure of each step.

The test whether a decorated object is blacklisted is memoized without bound, by the object itself:
a closure that is decorated anew in each step stays, with the batch in its cells. Repaired in
0.23.0, which remembers by weak references (https://github.com/beartype/beartype/issues/673).
"""

import torch
from beartype import beartype
from torch import nn

STEPS, ROWS, WIDTH, HIDDEN = 1800, 320, 64, 48


def make_closure(model, optimizer, x, y):
    """Return what L-BFGS evaluates several times in a step."""

    @beartype  # feeds
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    return closure


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=8, history_size=4)
    for step in range(1, STEPS + 1):
        x = torch.randn(ROWS, WIDTH)
        y = (x[:, :1] * x[:, 1:2]).sin()
        loss = optimizer.step(make_closure(model, optimizer, x, y))  # feeds
        if step % 60 == 0:
            print(f"step {step}/{STEPS}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
