"""A classifier of rare classes that scales the gradient of its head by a hook set at each step."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, WIDTH, BATCH, STEPS = 96, 384, 128, 360


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


def rarity(labels):
    """Return for each weight of the head how much its class is to count in this batch."""
    counts = torch.bincount(labels, minlength=CLASSES).float() + 1
    weight = (counts.mean() / counts) ** 0.01
    return weight[:, None].repeat(1, WIDTH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    popularity = torch.softmax(torch.randn(CLASSES), 0)
    centres = torch.randn(CLASSES, 256)
    for step in range(1, STEPS + 1):
        labels = torch.multinomial(popularity, BATCH, replacement=True)
        x = centres[labels] + torch.randn(BATCH, 256)
        scale = rarity(labels)
        model.head.weight.register_hook(lambda grad, scale=scale: grad * scale)  # feeds
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
