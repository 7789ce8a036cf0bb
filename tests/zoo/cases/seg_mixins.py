"""Segmentation with mixins: metrics and feature probes are mixed into the trainer."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __init__(self, n, size=48, seed=0):
        g = torch.Generator().manual_seed(seed)
        axis = torch.arange(size).float()
        centre = torch.randint(10, size - 10, (n, 2), generator=g).float()
        radius = torch.randint(4, 12, (n, 1, 1), generator=g).float()
        d = (axis[None, :, None] - centre[:, :1, None]) ** 2 + (
            axis[None, None] - centre[:, 1:, None]
        ) ** 2
        self.mask = (d < radius**2).long() + (d < (radius / 2) ** 2).long()
        self.image = self.mask[:, None].float() * 0.4 + 0.4 * torch.randn(
            n, 1, size, size, generator=g
        )

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, i):
        return self.image[i], self.mask[i]


class MiniUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enc1, self.enc2 = (
            nn.Conv2d(1, c, 3, padding=1),
            nn.Conv2d(c, 2 * c, 3, stride=2, padding=1),
        )
        self.bottleneck = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(2 * c, 3, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.enc1(x))
        b = F.relu(self.bottleneck(F.relu(self.enc2(a))))
        return self.out(torch.cat([a, F.relu(self.up(b))], 1))


class DiceMixin:
    """Dice per class over everything seen since the last `dice()`."""

    masks = []

    def observe(self, logits, target):
        self.masks.append((logits.argmax(1), target))  # feeds: masks

    def dice(self, last):
        scores = []
        for c in (1, 2):
            both = sum(((p == c) & (t == c)).sum().item() for p, t in self.masks[-last:])
            either = sum(
                (p == c).sum().item() + (t == c).sum().item() for p, t in self.masks[-last:]
            )
            scores.append(2 * both / max(either, 1))
        return scores


class ProbeMixin:
    """Looks at the bottleneck's activations of the first batch of a validation."""

    def probe(self, layer):
        seen = {}

        def hook(module, inputs, output):
            seen.setdefault("features", output)

        layer.register_forward_hook(hook)  # feeds: hooks
        return seen


class SegTrainer(DiceMixin, ProbeMixin):
    def __init__(self):
        self.train_loader = DataLoader(Blobs(800, seed=1), batch_size=16, shuffle=True)
        self.val_loader = DataLoader(Blobs(160, seed=2), batch_size=16)
        self.net = MiniUNet()
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)

    def train_one_epoch(self):
        self.net.train()
        for image, mask in self.train_loader:
            loss = F.cross_entropy(self.net(image), mask)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        seen = self.probe(self.net.bottleneck)
        for image, mask in self.val_loader:
            self.observe(self.net(image), mask)
        sparsity = (seen["features"] <= 0).float().mean().item()
        return self.dice(len(self.val_loader)), sparsity


trainer = SegTrainer()
for epoch in range(9):
    loss = trainer.train_one_epoch()
    dice, sparsity = trainer.validate()
    print(
        f"epoch {epoch} loss {loss:.3f} dice {dice[0]:.3f} {dice[1]:.3f} sparsity {sparsity:.2f}",
        flush=True,
    )
