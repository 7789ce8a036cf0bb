"""Segments cells from patches that are cut anew each epoch; hard patches weigh less at first."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    """Pictures of round cells, cut at random."""

    def __init__(self, count, side=96, patch=64, seed=0):
        random = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        self.pictures, self.masks, self.patch = [], [], patch
        for _ in range(count):
            centre = torch.rand(7, 2, 1, 1, generator=random) * side
            inside = ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2 < 81).any(0).float()
            noise = torch.randn(side, side, generator=random)
            self.pictures.append(inside + 0.8 * noise)
            self.masks.append(inside)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        top, left = torch.randint(0, len(self.masks[0]) - self.patch, (2,)).tolist()
        cut = slice(top, top + self.patch), slice(left, left + self.patch)
        return self.pictures[index][cut][None], self.masks[index][cut][None]


class SelfPaced:
    """Knows how hard a patch was and gives it its weight; the limit rises from epoch to epoch."""

    def __init__(self, limit=0.3, rise=1.15):
        self.limit, self.rise = limit, rise
        self.difficulty = {}

    def weights(self, patches, losses):
        patches = patches.unbind()
        for patch, loss in zip(patches, losses.tolist(), strict=True):
            self.difficulty[patch] = loss
        hard = torch.tensor([self.difficulty[patch] for patch in patches])
        return (hard <= self.limit).float() + 0.2

    def end_epoch(self):
        self.limit *= self.rise


class Segmenter(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(width, width, 5, padding=2), nn.ReLU())
        self.up = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.middle(self.down(x)))


def run(epochs=36, batch=6):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Patches(192), batch_size=batch, shuffle=True)
    model, pace = Segmenter(), SelfPaced()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for picture, mask in loader:
            each = nn.functional.binary_cross_entropy_with_logits(
                model(picture), mask, reduction="none"
            )
            each = each.mean((1, 2, 3))
            loss = (pace.weights(picture, each.detach()) * each).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        pace.end_epoch()
        print(f"epoch {epoch}: {each.mean().item():.4f} with limit {pace.limit:.2f}", flush=True)


if __name__ == "__main__":
    run()
