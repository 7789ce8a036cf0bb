"""A module that looks at itself while it is traced: whether it is, and by whom."""

import torch
from driving import train


class Curious(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("traced", torch.jit.is_tracing(), torch.compiler.is_compiling())
        return self.inner(x) * x.shape[0]


def look(model: torch.nn.Module, x: torch.Tensor) -> None:
    curious = Curious(model)
    curious.eval()
    curious(x)
    print(torch.jit.trace(curious, x, check_trace=False).code)


train(in_epoch=look)
