"""Texture autoencoder; loader workers keep a bounded store of rendered textures."""

import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
EPOCHS = 15
STORE = 240


class Textures(Dataset):
    """Renders textures on first use; each worker remembers up to STORE of them."""

    def __init__(self, n, size=96, scales=6):
        self.n = n
        self.size = size
        self.scales = scales
        self._store = {}
        self._order = []

    def __len__(self):
        return self.n

    def _render(self, i):
        rng = np.random.default_rng(i)
        yy, xx = np.mgrid[0 : self.size, 0 : self.size] / self.size
        layers = []
        for k in range(1, self.scales + 1):
            a, b, p = [*rng.normal(0, 12 * k, 2).tolist(), rng.uniform(0, 6.28)]
            layers.append(np.sin(a * xx + b * yy + p) / k)
        return np.stack(layers).astype(np.float32)

    def _layers(self, i):
        if i not in self._store:
            if len(self._order) >= STORE:
                del self._store[self._order.pop(0)]
            self._store[i] = self._render(i)
            self._order.append(i)
        return self._store[i]

    def __getitem__(self, i):
        layers = self._layers(i)
        weights = np.random.default_rng(int(torch.randint(1 << 30, (1,)))).random(self.scales)
        img = np.tensordot(weights.astype(np.float32), layers, 1)
        return torch.from_numpy(img[None, ::2, ::2].copy())


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 144, 32),
        )
        self.dec = nn.Sequential(
            nn.Linear(32, 16 * 144),
            nn.ReLU(),
            nn.Unflatten(1, (16, 12, 12)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1),
        )

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    torch.manual_seed(6)
    loader = DataLoader(
        Textures(320),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(6),
    )
    model = AutoEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    for epoch in range(EPOCHS):
        total = 0.0
        for x in loader:
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            time.sleep(0.01)
        if epoch % 2 == 0:
            print(
                f"epoch {epoch} loss {total / len(loader):.4f} {time.time() - start:.1f}s",
                flush=True,
            )


if __name__ == "__main__":
    main()
