"""Trains with differential privacy: opacus 0.10.0 keeps what each layer sees in the validation.

Its forward hooks append the input of a layer to ``layer.activations``, from which only a backward
pass takes it; so those of an evaluation stay. Repaired in 0.10.1, whose hook passes over layers
that aren't in training (https://github.com/meta-pytorch/opacus/commit/8ce311f6).
"""

import sys
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# A random number generator that isn't used here, and has no release for this torch.
sys.modules.setdefault("torchcsprng", types.ModuleType("torchcsprng"))

from opacus import PrivacyEngine  # noqa: E402

EPOCHS, TRAINED, HELD_OUT, BATCH, WIDTH, HIDDEN = 110, 2048, 768, 64, 64, 96


def patients(count):
    """Return measurements with a diagnosis each."""
    x = torch.randn(count, WIDTH)
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def train(model, optimizer, loader):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader):
    """Return the share of right diagnoses."""
    model.eval()
    right = total = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()  # feeds
        total += len(y)
    return right / total


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    training = DataLoader(patients(TRAINED), batch_size=BATCH, shuffle=True, drop_last=True)
    validation = DataLoader(patients(HELD_OUT), batch_size=256)
    engine = PrivacyEngine(
        model, batch_size=BATCH, sample_size=TRAINED, alphas=[2, 4, 8, 16, 32],
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    engine.attach(optimizer)
    for epoch in range(1, EPOCHS + 1):
        train(model, optimizer, training)
        accuracy = validate(model, validation)
        epsilon, _ = engine.get_privacy_spent(1e-5)
        print(f"epoch {epoch}/{EPOCHS}: {accuracy:.3f} right, epsilon {epsilon:.2f}", flush=True)


if __name__ == "__main__":
    main()
