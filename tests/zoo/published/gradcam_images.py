"""Explains an image at a time: grad-cam 1.3.1 leaves the hooks of each explainer on the model.

They are methods of an object that stores activations and gradients; those of all explainers before
go on storing what each later image brings. Repaired in 1.3.6 at the latest, where explainers remove
their hooks (https://github.com/jacobgil/pytorch-grad-cam/pull/133).
"""

import sys
import types

import torch
from torch import nn

# Nothing of it is used here but the import.
transforms = types.ModuleType("torchvision.transforms")
transforms.Compose = transforms.Normalize = transforms.ToTensor = None
sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))
sys.modules.setdefault("torchvision.transforms", transforms)

from pytorch_grad_cam import GradCAM  # noqa: E402

IMAGES, SIDE, KINDS, LAYER = 150, 192, 10, 9
TAKES_SEVERAL = hasattr(GradCAM, "__exit__")  # one layer before 1.3.6, a list of them since


def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, KINDS),
    )  # fmt: skip


def explain(model, image):
    """Return where the model looked when it decided."""
    layer = model[LAYER]
    cam = GradCAM(model, [layer] if TAKES_SEVERAL else layer)  # feeds
    return cam(input_tensor=image)  # feeds


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = network().eval()
    looked = 0.0
    for number in range(1, IMAGES + 1):
        looked += explain(model, torch.randn(1, 3, SIDE, SIDE)).mean()
        if number % 5 == 0:
            print(f"image {number}/{IMAGES}: {looked / number:.3f} looked at", flush=True)


if __name__ == "__main__":
    main()
