"""Reports values while it trains: pytorch-pfn-extras 0.2.1 keeps the graph of each reported value.

The reporter cloned tensors, with their history, and LogReport sums them up until the epoch is
over. Repaired in 0.3.0, which detaches them
(https://github.com/pfnet/pytorch-pfn-extras/pull/49).
"""

import queue
import sys
import tempfile
import types

import torch
from torch import nn

# What 0.3.0 still imports from it was removed from torch.
six = types.ModuleType("torch._six")
six.queue, six.string_classes = queue, (str, bytes)
sys.modules.setdefault("torch._six", six)

import pytorch_pfn_extras as ppe  # noqa: E402
from pytorch_pfn_extras.training import extensions  # noqa: E402

ITERATIONS, BATCH, WIDTH, HIDDEN, CLASSES = 12000, 48, 64, 160, 16


def batch():
    x = torch.randn(BATCH, WIDTH)
    return x, x[:, :CLASSES].argmax(1)


def train(model, optimizer, manager):
    for _ in range(ITERATIONS):
        with manager.run_iteration():
            x, y = batch()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            chances = logits.softmax(1)
            entropy = -(chances * logits.log_softmax(1)).sum(1).mean()
            ppe.reporting.report({"train/loss": loss, "train/entropy": entropy})  # feeds
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if manager.iteration % 400 == 0:
            print(f"iteration {manager.iteration}: loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        manager = ppe.training.ExtensionsManager(
            model, optimizer, 1, iters_per_epoch=ITERATIONS, out_dir=folder,
            extensions=[extensions.LogReport(trigger=(1, "epoch"))],
        )  # fmt: skip
        train(model, optimizer, manager)


if __name__ == "__main__":
    main()
