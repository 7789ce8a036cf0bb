"""Image classifier: a small residual network, with or without gradient checkpointing."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument(
    "--checkpointing", action="store_true", help="recompute activations in backward"
)
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(functional.relu(self.norm(self.first(x))))


class Classifier(nn.Module):
    def __init__(self, width=24, blocks=3, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, classes)

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if options.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def make_loader(count, shuffle, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 3, 32, 32, generator=generator)
    labels = (images.mean(dim=(1, 2, 3)) * 1000).long() % 10
    return DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=shuffle)


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader = make_loader(options.steps * 16, True, seed=1)
val_loader = make_loader(256, False, seed=2)
history = {"train_loss": [], "val_accuracy": []}


def train_epoch():
    model.train()
    train_loss = 0.0
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        train_loss += functional.cross_entropy(model(images), labels).item()
    return train_loss / len(train_loader)


def validate():
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in val_loader:
            features = model.features(images)
            outputs = model.head(features.mean(dim=(2, 3)))
            correct += (outputs.argmax(dim=1) == labels).sum().item()
    return correct / len(val_loader.dataset)


for epoch in range(options.epochs):
    history["train_loss"].append(train_epoch())
    history["val_accuracy"].append(validate())
    print(
        f"epoch {epoch}: loss {history['train_loss'][-1]:.4f}, "
        f"accuracy {history['val_accuracy'][-1]:.3f}",
        flush=True,
    )
