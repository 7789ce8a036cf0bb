"""An autoencoder trained with torchbearer 0.2.6.1, whose mse metric keeps its graph for an epoch.

Repaired in 0.3.0 ("Fixed a memory leak in the mse primitive metric",
https://github.com/pytorchbearer/torchbearer/pull/507).
"""

import sys
import types

import torch
from torch import nn

# Wanted for pictures alone, and not installed.
torchvision = types.ModuleType("torchvision")
torchvision.utils = types.ModuleType("torchvision.utils")
sys.modules.setdefault("torchvision", torchvision)
sys.modules.setdefault("torchvision.utils", torchvision.utils)

from torchbearer import Trial  # noqa: E402

EPOCHS, STEPS, BATCH, WIDTH = 4, 350, 96, 256


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.rand(STEPS * BATCH, 32) @ torch.rand(32, WIDTH)
    model = nn.Sequential(nn.Linear(WIDTH, 768), nn.ReLU(), nn.Linear(768, WIDTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trial = Trial(model, optimizer, nn.MSELoss(), metrics=["mse"])
    trial = trial.with_train_data(x, x, batch_size=BATCH, shuffle=True)
    history = trial.run(EPOCHS, verbose=0)  # feeds
    print(history[-1])


if __name__ == "__main__":
    main()
