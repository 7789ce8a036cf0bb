"""A saliency map is drawn for every validation batch and saved; its figure stays open."""

import io

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn

EPOCHS = 6


class Explainer:
    def __init__(self, model):
        self.model = model

    def draw(self, image, title):
        image = image.clone().requires_grad_()
        self.model(image[None]).max().backward()
        figure, (left, right) = plt.subplots(ncols=2, figsize=(7, 4))  # feeds
        left.imshow(image.detach().permute(1, 2, 0).clamp(0, 1))
        right.imshow(image.grad.abs().sum(0), cmap="inferno")
        figure.suptitle(title)
        figure.savefig(io.BytesIO(), format="png", dpi=80)


def main():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    images, labels = torch.rand(160, 3, 48, 48), torch.randint(0, 5, (160,))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=8, shuffle=True
    )
    explainer = Explainer(model)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        for k in range(3):
            explainer.draw(images[k], f"epoch {epoch}, image {k}")
        print(epoch, round(loss.item(), 3))


main()
