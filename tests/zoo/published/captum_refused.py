"""Explains forecasts to those who ask: captum 0.2.0 leaves a hook behind by each refused request.

An attribution registers a forward hook, and a forward pass that raises kept it from being removed:
the hook stays on the layer and holds, after each later pass, a copy of the layer's output of its
own. Repaired in 0.3.0 (https://github.com/pytorch/captum/pull/340).
"""

import time

import torch
from captum.attr import LayerActivation
from torch import nn

PER_SECOND, SECONDS, ROWS, WIDTH, HIDDEN, STORES = 160, 13, 48, 64, 256, 40


class Demand(nn.Module):
    """What a store sells next, by its recent sales."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU())
        self.store = nn.Embedding(STORES, 32)
        self.head = nn.Sequential(nn.Linear(HIDDEN + 32, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, sales, stores):
        return self.head(torch.cat((self.encoder(sales), self.store(stores)), dim=1))


def answer(explainer, sales, stores):
    """Return how active the encoder is; none if a store isn't known."""
    try:
        active = explainer.attribute(sales, additional_forward_args=(stores,))  # feeds
    except IndexError:
        return None
    return active.abs().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Demand().eval()
    explainer = LayerActivation(model, model.encoder)
    refused, highest = 0, 0.0
    begun = time.monotonic()
    for request in range(1, PER_SECOND * SECONDS + 1):
        time.sleep(max(0.0, begun + request / PER_SECOND - time.monotonic()))
        stores = torch.randint(0, STORES, (ROWS,))
        if request % 4 == 0:
            stores[0] = STORES  # one that has just been opened
        found = answer(explainer, torch.randn(ROWS, WIDTH), stores)
        refused += found is None
        highest = max(highest, found or 0.0)
        if request % 52 == 0:
            print(f"{request} requests, {refused} refused, highest {highest:.3f}", flush=True)


if __name__ == "__main__":
    main()
