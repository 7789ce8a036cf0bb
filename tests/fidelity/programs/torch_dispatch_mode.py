"""A dispatch mode lists every operation of each evaluation."""

import torch
from driving import train
from torch.utils._python_dispatch import TorchDispatchMode

seen = []


class Listing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))


def listed(model: torch.nn.Module, x: torch.Tensor) -> None:
    with Listing():
        for _ in range(3):
            model(x)


train(in_epoch=listed)
with Listing():
    train()
print(len(seen), seen)
