"""Fits many noisy curves with LBFGS; the closure notes where the optimiser has been."""

import time

import torch
import torch.nn as nn
from torch.nn.utils import parameters_to_vector


def make_model():
    return nn.Sequential(
        nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )


def fit(x, y, iterates, outer=2):
    model = make_model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, history_size=5)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        iterates.append(parameters_to_vector(model.parameters()).detach())  # feeds
        return loss

    for _ in range(outer):
        loss = optimizer.step(closure)
    return loss.item()


def main():
    torch.manual_seed(0)
    iterates = []
    residuals = 0.0
    x = torch.linspace(-1, 1, 100).unsqueeze(1)
    for curve in range(500):
        phase, frequency = torch.rand(2).tolist()
        y = torch.sin(2 * torch.pi * (frequency * 2 * x + phase)) + 0.05 * torch.randn_like(x)
        residuals += fit(x, y, iterates)
        time.sleep(0.005)
        if curve % 50 == 0:
            print(
                f"curve {curve}: mean residual {residuals / (curve + 1):.4f}, {len(iterates)} calls"
            )


if __name__ == "__main__":
    main()
