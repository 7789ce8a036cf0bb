"""Tracks a moving target by a small controller: osqp 1.0.5 keeps the answer of each step.

Repaired in 1.1.0 ("Memory leak fixes in the wrapper",
https://github.com/osqp/osqp-python/pull/199).
"""

import math

import numpy as np
import osqp
from scipy import sparse

STEPS, HORIZON, DT = 240000, 6, 0.05


def matrices():
    """Return the cost of controls and what they add to the position within the horizon."""
    effect = np.zeros((HORIZON, HORIZON))
    for row in range(HORIZON):
        for column in range(row + 1):
            effect[row, column] = (row - column + 0.5) * DT**2
    return effect


def main():
    effect = matrices()
    solver = osqp.OSQP()
    solver.setup(
        sparse.csc_matrix(effect.T @ effect + 1e-4 * np.eye(HORIZON)), np.zeros(HORIZON),
        sparse.identity(HORIZON, format="csc"), -np.ones(HORIZON), np.ones(HORIZON), verbose=False,
    )  # fmt: skip
    ahead = np.arange(1, HORIZON + 1) * DT
    position = speed = error = 0.0
    for step in range(1, STEPS + 1):
        target = np.array([math.sin(0.3 * (step * DT + wait)) for wait in ahead])
        free = position + speed * ahead
        solver.update(q=effect.T @ (free - target))
        control = solver.solve().x[0]  # feeds
        position += speed * DT + 0.5 * control * DT**2
        speed += control * DT
        error += abs(position - math.sin(0.3 * step * DT))
        if step % 8000 == 0:
            print(f"step {step}/{STEPS}: mean error {error / step:.4f}", flush=True)


if __name__ == "__main__":
    main()
