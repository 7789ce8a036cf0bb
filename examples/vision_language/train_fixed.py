"""A small vision-language model: image patches and words in one sequence, next word predicted."""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

WORDS = 800
LENGTH = 16
IMAGE = 96
PATCH = 16


class CaptionDataset(Dataset):
    """Pictures with captions; pictures come as PIL images, as from a folder of files."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Image.Image, torch.Tensor]:
        rng = np.random.default_rng(self.seed + index)
        pixels = rng.integers(0, 256, (IMAGE, IMAGE, 3), dtype=np.uint8)
        return Image.fromarray(pixels), torch.from_numpy(rng.integers(0, WORDS, LENGTH))


def collate(
    samples: list[tuple[Image.Image, torch.Tensor]],
) -> tuple[list[Image.Image], torch.Tensor, torch.Tensor]:
    images = [image for image, _ in samples]
    pixels = torch.stack([torch.from_numpy(np.array(image)) for image in images])
    return images, pixels.permute(0, 3, 1, 2).float() / 255, torch.stack([t for _, t in samples])


class CaptionModel(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, WORDS)

    def forward(self, pixels: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        patches = self.patches(pixels).flatten(2).transpose(1, 2)
        sequence = torch.cat([patches, self.words(words)], dim=1)
        return self.head(self.encoder(sequence)[:, patches.shape[1] :])


class SampleGallery:
    """Pictures for the panel that shows what the model was trained on."""

    def __init__(self) -> None:
        self.images: deque[Image.Image] = deque(maxlen=64)

    def add(self, images: list[Image.Image]) -> None:
        for image in images:
            self.images.append(image)


class VisionLanguageTrainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = CaptionModel()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.gallery = SampleGallery()
        self.recent_losses: deque[float] = deque(maxlen=50)
        self.loader = DataLoader(
            CaptionDataset(options.steps * 8, 0), batch_size=8, collate_fn=collate, shuffle=True
        )
        self.eval_loader = DataLoader(CaptionDataset(128, 50_000), batch_size=8, collate_fn=collate)

    def loss(self, logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())

    def evaluate(self) -> float:
        self.model.eval()
        losses = []
        with torch.no_grad():
            for _, pixels, words in self.eval_loader:
                logits = self.model(pixels, words)
                losses.append(self.loss(logits, words).item())
        self.model.train()
        return sum(losses) / len(losses)

    def train(self) -> None:
        self.model.train()
        step = 0
        for epoch in range(self.options.epochs):
            for images, pixels, words in self.loader:
                loss = self.loss(self.model(pixels, words), words)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.recent_losses.append(loss.item())
                self.gallery.add(images)
                step += 1
                if step % self.options.eval_every == 0:
                    score = self.evaluate()
                    print(f"epoch {epoch}, step {step}: validation loss {score:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--eval-every", type=int, default=40)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    VisionLanguageTrainer(options).train()


if __name__ == "__main__":
    main()
