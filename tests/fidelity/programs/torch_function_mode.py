"""A function mode lists every call of torch's interface, in evaluations and all along."""

import torch
from driving import train
from torch.overrides import TorchFunctionMode

seen = []


class Listing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


def listed(model: torch.nn.Module, x: torch.Tensor) -> None:
    with Listing():
        for _ in range(3):
            model(x)


train(in_epoch=listed)
with Listing():
    train()
print(len(seen), seen)
