"""Progressive resizing: the pictures and their kept originals grow for three stages, then stay."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, PICTURES, BATCH, EPOCHS = 5, 160, 16, 15
STAGES = {0: 24, 2: 32, 3: 48, 5: 64}


class Stage:
    """The whole set at one resolution."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (PICTURES,), generator=generator)
        axis = torch.linspace(-1, 1, size)
        angle = self.labels.view(-1, 1, 1) * 0.6
        wave = axis.view(1, 1, -1) * torch.cos(angle) + axis.view(1, -1, 1) * torch.sin(angle)
        noise = torch.randn(PICTURES, 3, size, size, generator=generator)
        self.pictures = torch.sin(9 * wave).unsqueeze(1) + 0.5 * noise


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
        )
        self.head = nn.Linear(48, CLASSES)

    def forward(self, pictures):
        return self.head(self.body(pictures).mean((2, 3)))


class Progressive:
    def __init__(self):
        self.stage = None
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def epoch(self, number):
        if number in STAGES:
            self.stage = Stage(STAGES[number], seed=0)
        right = 0
        for rows in torch.randperm(PICTURES).split(BATCH):
            pictures, labels = self.stage.pictures[rows], self.stage.labels[rows]
            if torch.rand(()) < 0.5:
                pictures = pictures + 0.1 * torch.randn_like(pictures)
            logits = self.model(pictures)
            loss = F.cross_entropy(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            right += int((logits.argmax(-1) == labels).sum())
        return right / PICTURES


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    progressive = Progressive()
    for number in range(EPOCHS):
        accuracy = progressive.epoch(number)
        size = progressive.stage.pictures.shape[-1]
        print(f"epoch {number}: {size} pixels, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
