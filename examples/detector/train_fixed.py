"""Few-shot detector: episodes of support and query images, mixed with triplet batches.

Every epoch trains on episodes cut from short videos (decoded frames are cached), then validates on
forty episodes and reports the mean overlap of the predicted boxes.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

IMAGE = 64
WAYS = 4


class FrameCache:
    """Decoded frames, least recently used ones dropped first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.frames: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()

    def get(self, video: int, index: int) -> np.ndarray:
        key = (video, index)
        if key in self.frames:
            self.frames.move_to_end(key)
            return self.frames[key]
        rng = np.random.default_rng(video * 1000 + index)
        frame = rng.random((3, IMAGE, IMAGE), dtype=np.float32)
        self.frames[key] = frame
        while len(self.frames) > self.capacity:
            self.frames.popitem(last=False)
        return frame


class EpisodeDataset(Dataset):
    """Episodes: a support image and its box per class, and a query image with one object."""

    def __init__(self, episodes: int, cache: FrameCache, seed: int) -> None:
        self.episodes = episodes
        self.cache = cache
        self.seed = seed

    def __len__(self) -> int:
        return self.episodes

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng(self.seed + index)
        video, frame = int(rng.integers(10)), int(rng.integers(60))
        support = [self.cache.get(video, (frame + way) % 60) for way in range(WAYS)]
        corner = rng.random(2, dtype=np.float32) * 0.6
        return {
            "support": torch.from_numpy(np.stack(support)),
            "query": torch.from_numpy(self.cache.get(video, frame)),
            "box": torch.tensor([*corner, *(corner + 0.3)]),
            "label": torch.tensor(int(rng.integers(WAYS))),
        }


class TripletDataset(Dataset):
    """Anchor, positive and negative crops."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(3, 3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(index))


class Detector(nn.Module):
    """Dense boxes, one score per class and cell, compared with prototypes of the support."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.boxes = nn.Conv2d(width, 4, 1)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return self.backbone(images).mean(dim=(2, 3))

    def forward(
        self, support: torch.Tensor, query: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch = query.shape[0]
        prototypes = self.embed(support.flatten(0, 1)).view(batch, WAYS, -1)
        features = self.backbone(query)
        scores = torch.einsum("bwc,bcij->bwij", prototypes, features) * self.temperature
        corner, size = self.boxes(features).sigmoid().chunk(2, dim=1)
        return torch.cat([corner, corner + size], dim=1), scores


def overlap(predicted: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Intersection over union of dense boxes (B, N, 4) with one true box each (B, 4)."""
    truth = truth[:, None, :]
    low = torch.maximum(predicted[..., :2], truth[..., :2])
    high = torch.minimum(predicted[..., 2:], truth[..., 2:])
    inner = (high - low).clamp(min=0).prod(dim=-1)
    area = (predicted[..., 2:] - predicted[..., :2]).clamp(min=0).prod(dim=-1)
    return inner / (area + (truth[..., 2:] - truth[..., :2]).prod(dim=-1) - inner + 1e-6)


class MetricLogger:
    """Collects what a run reports: losses for the curve."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []

    def log(self, record: dict[str, object]) -> None:
        self.records.append(record)


class Trainer:
    """Trains and validates the detector."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = Detector()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.logger = MetricLogger()
        self.grad_norms: list[float] = []
        cache = FrameCache(options.frame_cache_size)
        self.train_loader = DataLoader(
            EpisodeDataset(options.episodes * 8, cache, seed=0), batch_size=8, shuffle=True
        )
        self.val_loader = DataLoader(
            EpisodeDataset(options.val_episodes * 32, cache, seed=10_000), batch_size=16
        )
        self.triplets = DataLoader(TripletDataset(), batch_size=options.triplet_batch_size)

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        total = 0.0
        for step, batch in enumerate(self.train_loader):
            boxes, scores = self.model(batch["support"], batch["query"])
            dense = boxes.flatten(2).transpose(1, 2)
            loss = 1 - overlap(dense, batch["box"]).mean()
            loss = loss + functional.cross_entropy(scores.mean(dim=(2, 3)), batch["label"])
            if step % 16 == 0:
                loss = loss + self.triplet_loss()
            self.optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.grad_norms.append(float(norm))
            if len(self.grad_norms) > self.options.grad_norm_window:
                self.grad_norms.pop(0)
            self.optimizer.step()
            total += loss.item()
            self.logger.log({"epoch": epoch, "loss": loss.item()})
        return total / len(self.train_loader)

    def triplet_loss(self) -> torch.Tensor:
        triplets = next(iter(self.triplets))
        anchor, positive, negative = (self.model.embed(triplets[:, i]) for i in range(3))
        return functional.triplet_margin_loss(anchor, positive, negative)

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        best = []
        for batch in self.val_loader:
            boxes, scores = self.model(batch["support"], batch["query"])
            dense = boxes.flatten(2).transpose(1, 2)
            ious = overlap(dense, batch["box"])
            for iou, score in zip(ious, scores):
                best.append(float(iou[score.amax(dim=0).argmax()]))
        return float(np.mean(best))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--val-episodes", type=int, default=40)
    parser.add_argument("--triplet-batch-size", type=int, default=64)
    parser.add_argument("--frame-cache-size", type=int, default=300)
    parser.add_argument("--grad-norm-window", type=int, default=100)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(options)
    for epoch in range(options.epochs):
        loss = trainer.train_epoch(epoch)
        score = trainer.validate()
        print(f"epoch {epoch}: loss {loss:.4f}, overlap {score:.4f}", flush=True)


if __name__ == "__main__":
    main()
