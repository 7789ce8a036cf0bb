"""The model is scripted at the end of each epoch, and what was scripted calls back into Python."""

import torch
from driving import train


class Scripted(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    @torch.jit.ignore
    def aside(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.aside(x))


def script(model: torch.nn.Module, x: torch.Tensor) -> None:
    scripted = torch.jit.script(Scripted(model).eval())
    print(scripted.code, float(scripted(x).sum()))


train(in_epoch=script)
