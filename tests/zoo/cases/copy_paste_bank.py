"""Segments rare parts on a conveyor; parts cut out of earlier pictures are pasted into new ones."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, PICTURES, BATCH, SIZE, CLASSES, BANK_SIZE = 8, 120, 8, 96, 4, 20


class Conveyor(Dataset):
    """Pictures with two or three parts on a noisy belt, and the class of each pixel."""

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        dice = random.Random(index)
        noise = torch.Generator().manual_seed(index)
        picture = 0.2 * torch.randn(3, SIZE, SIZE, generator=noise)
        labels = torch.zeros(SIZE, SIZE, dtype=torch.long)
        for _ in range(dice.choice([2, 3])):
            kind = min(CLASSES, 1 + int(dice.expovariate(0.9)))
            height, width = dice.randrange(20, 34), dice.randrange(20, 34)
            top, left = dice.randrange(SIZE - height), dice.randrange(SIZE - width)
            region = (slice(top, top + height), slice(left, left + width))
            picture[(slice(None), *region)] += torch.tensor([kind, 4 - kind, 1.5]).view(3, 1, 1) / 2
            labels[region] = kind
        return picture, labels


class CopyPaste:
    """Keeps cut-outs of each class and pastes some of them into a batch."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.bank = {kind: [] for kind in range(1, CLASSES + 1)}

    def collect(self, pictures, labels):
        for picture, label in zip(pictures, labels, strict=True):
            for kind in label.unique().tolist():
                if kind == 0:
                    continue
                rows, columns = (label == kind).nonzero(as_tuple=True)
                box = (
                    slice(rows.min(), rows.max() + 1),
                    slice(columns.min(), columns.max() + 1),
                )
                cutout = (picture[:, box[0], box[1]].clone(), (label[box] == kind).clone())
                self.bank[kind].append(cutout)
                self.newest(kind)

    def newest(self, kind):
        return self.bank[kind][-BANK_SIZE:]

    def paste(self, pictures, labels):
        for picture, label in zip(pictures, labels, strict=True):
            kind = self.dice.randrange(1, CLASSES + 1)
            if not self.bank[kind] or self.dice.random() < 0.4:
                continue
            part, mask = self.dice.choice(self.newest(kind))
            height, width = mask.shape
            top = self.dice.randrange(SIZE - height + 1)
            left = self.dice.randrange(SIZE - width + 1)
            region = (slice(top, top + height), slice(left, left + width))
            picture[:, region[0], region[1]][:, mask] = part[:, mask]
            label[region][mask] = kind


def network():
    def block(inputs, outputs, stride=1):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    return nn.Sequential(
        block(3, 16), block(16, 24, 2), block(24, 24), nn.Upsample(scale_factor=2),
        block(24, 16), nn.Conv2d(16, CLASSES + 1, 1),
    )  # fmt: skip


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, augment = network(), CopyPaste(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    weights = torch.tensor([0.3] + [1.0] * CLASSES)
    loader = DataLoader(
        Conveyor(), BATCH, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True
    )
    for epoch in range(EPOCHS):
        total = right = 0.0
        for pictures, labels in loader:
            augment.collect(pictures, labels)
            augment.paste(pictures, labels)
            logits = model(pictures)
            loss = nn.functional.cross_entropy(logits, labels, weights)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
            right += (logits.argmax(1) == labels).float().mean().item()
        print(f"epoch {epoch}: {total / len(loader):.3f}, {right / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
