"""Stochastic matrix factorisation whose batch size doubles four times, then stays."""

import time

import numpy as np


class Factoriser:
    def __init__(self, rows, columns, rank, rng):
        self.u = rng.standard_normal((rows, rank)) * 0.1
        self.v = rng.standard_normal((columns, rank)) * 0.1

    def step(self, i, j, value, rate):
        u, v = self.u[i], self.v[j]
        error = value - (u * v).sum(1)
        grad_u = error[:, None] * v - 0.01 * u
        grad_v = error[:, None] * u - 0.01 * v
        np.add.at(self.u, i, rate * grad_u)
        np.add.at(self.v, j, rate * grad_v)
        return float((error**2).mean())


def main():
    rng = np.random.default_rng(0)
    model = Factoriser(4000, 3000, 24, rng)
    history = []
    for epoch in range(24):
        batch = 1000 * 2 ** min(4, epoch // 3)
        errors = []
        for _ in range(16):
            i, j = rng.integers(0, 4000, batch), rng.integers(0, 3000, batch)
            value = np.sin(i * 0.01) + np.cos(j * 0.02)
            errors.append(model.step(i, j, value, 0.02))
            time.sleep(0.006)
        history.append(sum(errors) / len(errors))
        print("epoch", epoch, "batch", batch, "error", round(history[-1], 4))


if __name__ == "__main__":
    main()
