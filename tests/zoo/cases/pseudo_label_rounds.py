"""Learns from few labels and many pictures without: sure guesses of each round join the next."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

ROUNDS, LABELLED, UNLABELLED, SIDE, CLASSES = 22, 256, 768, 20, 5


def pictures(count, seed):
    """Return stripes of a direction each class has, in noise."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(0, CLASSES, (count,), generator=random)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    angle = label * torch.pi / CLASSES
    wave = torch.sin(angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y)
    return wave[:, None] + 1.2 * torch.randn(count, 1, SIDE, SIDE, generator=random), label


class Student(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(8 * width, CLASSES)

    def forward(self, x):
        return self.head(self.features(x))


class SelfTraining:
    def __init__(self, labelled, batch=32, steps=40):
        self.train_set = labelled
        self.student = Student()
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=1e-3)
        self.batch, self.steps = batch, steps

    def fit(self):
        self.student.train()
        loader = iter(DataLoader(self.train_set, self.batch, shuffle=True))
        for _ in range(self.steps):
            rows, label = next(loader, (None, None))
            if rows is None:
                loader = iter(DataLoader(self.train_set, self.batch, shuffle=True))
                rows, label = next(loader)
            loss = nn.functional.cross_entropy(self.student(rows), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def guess(self, rows, share=0.5):
        """Add those of the pictures whose class seems sure."""
        self.student.eval()
        sure, label = self.student(rows).softmax(-1).max(-1)
        best = sure.topk(int(share * len(rows))).indices
        self.train_set = ConcatDataset([self.train_set, TensorDataset(rows[best], label[best])])
        return sure[best].mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    training = SelfTraining(TensorDataset(*pictures(LABELLED, 0)))
    rows, truth = pictures(UNLABELLED, 1)
    for number in range(ROUNDS):
        loss, sure = training.fit(), training.guess(rows)
        with torch.no_grad():
            hits = (training.student(rows).argmax(-1) == truth).float().mean().item()
        print(f"round {number}: loss {loss:.3f}, sure {sure:.3f}, right {hits:.3f}", flush=True)


if __name__ == "__main__":
    main()
