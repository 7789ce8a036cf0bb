"""The model is called inside vmap, grad, vjp, jvp, functionalize and jacrev."""

import torch
from driving import train
from torch.func import functionalize, grad, jacrev, jvp, vjp, vmap


def transform(model: torch.nn.Module, x: torch.Tensor) -> None:
    def loss(row: torch.Tensor) -> torch.Tensor:
        return model(row).pow(2).sum()

    print(float(vmap(loss)(x).sum()), float(grad(loss)(x).sum()), float(vjp(loss, x)[0]))
    print(float(jvp(loss, (x,), (x,))[1]), float(functionalize(loss)(x)))
    print(jacrev(loss)(x[0]).shape, float(vmap(grad(loss))(x).sum()))


train(in_epoch=transform)
