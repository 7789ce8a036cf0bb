"""The model is exported at the end of each epoch."""

import torch
from driving import train


def export(model: torch.nn.Module, x: torch.Tensor) -> None:
    print(torch.export.export(model, (x,)).graph)
    print(torch.export.export(model, (x,), strict=True).graph)


train(in_epoch=export, epochs=2)
