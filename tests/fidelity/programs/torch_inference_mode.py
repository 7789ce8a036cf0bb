"""Evaluation in inference mode; its tensors are kept and may not be used in training."""

import torch
from driving import train

kept = []


def evaluate(model: torch.nn.Module, x: torch.Tensor) -> None:
    with torch.inference_mode():
        for _ in range(3):
            kept.append(model(x))
    print(kept[-1].is_inference(), kept[-1]._version if not kept[-1].is_inference() else "none")
    try:
        kept[-1].add_(1)
    except RuntimeError as error:
        print(error)


train(in_epoch=evaluate)
