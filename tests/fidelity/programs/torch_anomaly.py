"""Anomaly detection, deterministic algorithms and a NaN that the program catches."""

import warnings

import torch
from driving import train

torch.use_deterministic_algorithms(True)
torch.autograd.set_detect_anomaly(True)


def fail(model: torch.nn.Module, x: torch.Tensor) -> None:
    bad = torch.zeros(4, requires_grad=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has all of the stack, the launch's frames too
            (bad / bad).sum().backward()
    except RuntimeError as error:
        print(str(error).splitlines()[0])


train(in_epoch=fail)
print(torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled())
