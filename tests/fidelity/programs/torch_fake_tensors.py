"""The model's shapes are worked out on tensors without memory, within a mode and after it."""

import copy

import torch
from driving import train
from torch._subclasses.fake_tensor import FakeTensorMode

kept = []


def work_out(model: torch.nn.Module, x: torch.Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = copy.deepcopy(model)
        for _ in range(3):
            y = fake(mode.from_tensor(x))
            kept.append(y)
        print(type(y).__name__, tuple(y.shape), y.device)


train(in_epoch=work_out)
