"""Influence of training points on a validation loss, with torch.func.vjp."""

import time

import torch
import torch.nn as nn
from torch.func import functional_call, vjp


class InfluenceEstimator:
    def __init__(self, model):
        self.model = model
        self.params = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.pullbacks = []
        self.scores = []

    def loss_of(self, x, y):
        def loss(params):
            out = functional_call(self.model, params, (x,))
            return nn.functional.mse_loss(out, y)

        return loss

    def prepare(self, x, y):
        value, pullback = vjp(self.loss_of(x, y), self.params)
        self.pullbacks.append(pullback)  # feeds
        return value

    def score(self, reference):
        (gradient,) = self.pullbacks[-1](torch.ones(()))
        dot = sum((gradient[k] * reference[k]).sum() for k in reference)
        self.scores.append(dot.item())


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(24, 384), nn.ReLU(), nn.Linear(384, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    estimator = InfluenceEstimator(model)
    x_val = torch.randn(256, 24)
    _, pull = vjp(estimator.loss_of(x_val, x_val[:, :1]), estimator.params)
    (reference,) = pull(torch.ones(()))
    for chunk in range(500):
        x = torch.randn(64, 24)
        estimator.prepare(x, x[:, :1] + 0.1)
        estimator.score(reference)
        time.sleep(0.015)
        if chunk % 100 == 0:
            print("chunk", chunk, "mean influence", sum(estimator.scores) / len(estimator.scores))


if __name__ == "__main__":
    main()
