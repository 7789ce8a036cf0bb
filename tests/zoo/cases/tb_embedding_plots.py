"""Metric learning on synthetic clusters, with embedding plots sent to TensorBoard."""

import argparse
import os
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from torch import nn
from torch.utils.tensorboard import SummaryWriter

plt.rcParams.update({"figure.max_open_warning": 0, "figure.dpi": 72, "font.size": 8})


class Clusters:
    def __init__(self, classes=8, dim=32, seed=0):
        self.rng = np.random.default_rng(seed)
        self.centers = self.rng.normal(scale=1.2, size=(classes, dim))
        self.classes, self.dim = classes, dim

    def draw(self, n):
        y = self.rng.integers(0, self.classes, size=n)
        x = self.centers[y] + self.rng.normal(size=(n, self.dim))
        x = np.concatenate([x, np.abs(x[:, :8])], axis=1)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Embedder(nn.Module):
    def __init__(self, in_dim, out_dim=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(in_dim, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, out_dim),
        )

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def supervised_contrastive(z, y, temperature=0.2):
    sim = z @ z.T / temperature
    eye = torch.eye(len(z), dtype=torch.bool)
    sim = sim.masked_fill(eye, float("-inf"))
    same = (y[:, None] == y[None, :]) & ~eye
    logp = sim - torch.logsumexp(sim, dim=1, keepdim=True)
    per_row = -(logp.masked_fill(~same, 0.0)).sum(1) / same.sum(1).clamp_min(1)
    return per_row.mean()


class Dashboard:
    def __init__(self, log_dir):
        self.writer = SummaryWriter(log_dir)

    def scalars(self, step, **values):
        for key, value in values.items():
            self.writer.add_scalar(f"train/{key}", value, step)

    def embedding(self, z, y, step):
        points = PCA(n_components=2).fit_transform(z)
        fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3))
        left.scatter(points[:, 0], points[:, 1], c=y, s=5, cmap="tab10")
        left.set_title(f"step {step}")
        sims = z[np.argsort(y)] @ z[np.argsort(y)].T
        image = right.imshow(sims, cmap="viridis", vmin=-1, vmax=1)
        fig.colorbar(image, ax=right)
        self.writer.add_figure("val/embedding", fig, step, close=False)
        return silhouette_score(z, y)

    def close(self):
        self.writer.flush()
        self.writer.close()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=1200)
    p.add_argument("--plot-every", type=int, default=30)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    data = Clusters()
    val_x, val_y = data.draw(200)
    model = Embedder(val_x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    with tempfile.TemporaryDirectory() as root:
        board = Dashboard(os.path.join(root, "runs"))
        for step in range(1, args.steps + 1):
            x, y = data.draw(args.batch_size)
            loss = supervised_contrastive(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                board.scalars(step, loss=loss.item())
            if step % args.plot_every == 0:
                model.eval()
                with torch.no_grad():
                    z = model(val_x).numpy()
                score = board.embedding(z, val_y.numpy(), step)
                model.train()
                if step % (args.plot_every * 5) == 0:
                    print(
                        f"step {step:5d} loss {loss.item():.4f} silhouette {score:.3f}", flush=True
                    )
        board.close()


if __name__ == "__main__":
    main()
