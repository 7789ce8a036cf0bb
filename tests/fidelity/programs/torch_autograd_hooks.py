"""Saved tensors are packed and unpacked by hooks, activations recomputed, gradients hooked."""

import torch
from driving import train
from torch.utils.checkpoint import checkpoint

told = []
packing = torch.autograd.graph.saved_tensors_hooks(
    lambda x: told.append("pack") or x, lambda x: told.append("unpack") or x
)


def hook(model: torch.nn.Module, x: torch.Tensor) -> None:
    with packing:
        y = model(x)
        y.register_hook(lambda gradient: told.append("gradient"))
        kept.append(y)
        y.sum().backward()
    checkpoint(
        lambda z: told.append("computed") or model(z), x, use_reentrant=False
    ).sum().backward()
    kept.append(checkpoint(model, x, use_reentrant=False))


kept: list[torch.Tensor] = []
train(in_step=hook)
print(len(told), told)
