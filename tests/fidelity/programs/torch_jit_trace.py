"""The model is traced at the end of each epoch."""

import torch
from driving import train


def trace(model: torch.nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        print(str(torch.jit.trace(model, x).graph))


train(in_epoch=trace)
