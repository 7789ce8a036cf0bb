"""Trains with a running loss: torchbearer 0.3.0 sums the losses of an epoch up with their graphs.

The decorator that was to switch gradients off stood at the base class of metrics, whose methods
each metric overrides. Repaired in 0.3.1, of which the package lacks a part; 0.3.2 has it
(https://github.com/pytorchbearer/torchbearer/pull/533).
"""

import sys
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Absent(types.ModuleType):
    """Stands for a package that torchbearer imports and doesn't use here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


for part in ("", ".utils", ".datasets", ".datasets.folder"):
    sys.modules.setdefault(f"torchvision{part}", Absent(f"torchvision{part}"))

import torchbearer  # noqa: E402
from torchbearer import Trial, callbacks  # noqa: E402

STEPS, BATCH, WIDTH, HIDDEN, LAYERS = 8100, 16, 32, 48, 6
REPORT_EVERY = 270


def network():
    layers = [nn.Linear(WIDTH, HIDDEN), nn.GELU()]
    for _ in range(LAYERS):
        layers += [nn.Linear(HIDDEN, HIDDEN), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, 1))


@callbacks.on_step_training
def progress(state):
    step = state[torchbearer.BATCH] + 1
    if step % REPORT_EVERY == 0:
        loss = state[torchbearer.METRICS]["running_loss"]
        print(f"step {step}/{STEPS}: running loss {loss:.4f}", flush=True)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(STEPS * BATCH, WIDTH)
    loader = DataLoader(TensorDataset(x, x[:, :1] * x[:, 1:2]), batch_size=BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trial = Trial(
        model, optimizer, nn.functional.mse_loss, metrics=["loss"], callbacks=[progress], verbose=0
    )
    trial.with_train_generator(loader).run(1)  # feeds


if __name__ == "__main__":
    main()
