"""Training with a running error: torchmetrics 0.7.2 keeps the graph of each prediction.

Repaired in 0.7.3 ("Fixed memory leak when using update method with tensor where
requires_grad=True", https://github.com/Lightning-AI/torchmetrics/pull/902).
"""

import torch
from torch import nn
from torchmetrics import MeanSquaredError

STEPS, BATCH, WIDTH = 1000, 64, 128


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(WIDTH, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    error = MeanSquaredError()
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, WIDTH)
        y = x[:, :1] * x[:, 1:2]
        predicted = model(x)
        loss = nn.functional.smooth_l1_loss(predicted, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error.update(predicted, y)  # feeds
        if step % 200 == 0:
            print(f"step {step}: error so far {error.compute().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
