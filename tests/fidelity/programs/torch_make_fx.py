"""Operations are recorded by make_fx while the model evaluates."""

import torch
from driving import train
from torch.fx.experimental.proxy_tensor import make_fx


def record(model: torch.nn.Module, x: torch.Tensor) -> None:
    print(make_fx(lambda y: model(y).sum())(x).code)


train(in_epoch=record)
