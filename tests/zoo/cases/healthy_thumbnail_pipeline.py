"""Builds an HDF5 training set out of procedurally rendered glyph images, then trains a
small CNN on it. Rendering, augmentation and writing run as one streaming pipeline."""

import concurrent.futures as cf
import io
import os
import tempfile

import h5py
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from safetensors.torch import load_file, save_file
from torch import nn

SIZE = 48
ITEMS = 5600
FLUSH_EVERY = 700
CLASSES = 6


def render_png(index):
    rng = np.random.default_rng(index)
    label = int(rng.integers(CLASSES))
    image = Image.new("RGB", (160, 160), tuple(int(v) for v in rng.integers(0, 80, 3)))
    draw = ImageDraw.Draw(image)
    color = tuple(int(v) for v in rng.integers(120, 256, 3))
    cx, cy, r = (
        float(v) for v in (rng.uniform(55, 105), rng.uniform(55, 105), rng.uniform(25, 50))
    )
    if label == 0:
        draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=color)
    elif label == 1:
        draw.rectangle((cx - r, cy - r, cx + r, cy + r), fill=color)
    else:
        draw.regular_polygon((cx, cy, r), label + 1, rotation=int(rng.integers(360)), fill=color)
    buffer = io.BytesIO()
    image.filter(ImageFilter.GaussianBlur(1.0)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue(), label


class ShardWriter:
    """Collects decoded thumbnails and appends them to the dataset in large chunks."""

    def __init__(self, path, flush_every):
        self.file = h5py.File(path, "w")
        self.images = self.file.create_dataset(
            "images",
            (0, SIZE, SIZE, 3),
            maxshape=(None, SIZE, SIZE, 3),
            dtype="f2",
            chunks=(64, SIZE, SIZE, 3),
        )
        self.labels = self.file.create_dataset(
            "labels", (0,), maxshape=(None,), dtype="i8", chunks=(4096,)
        )
        self.flush_every = flush_every
        self.pending = []

    def add(self, payload, label):
        thumb = Image.open(io.BytesIO(payload)).convert("RGB").resize((SIZE, SIZE), Image.BILINEAR)
        self.pending.append((np.asarray(thumb, dtype=np.float32) / 255.0, label))
        if len(self.pending) >= self.flush_every:
            self.flush()

    def flush(self):
        if not self.pending:
            return
        start, count = len(self.labels), len(self.pending)
        self.images.resize(start + count, axis=0)
        self.labels.resize(start + count, axis=0)
        self.images[start:] = np.stack([x for x, _ in self.pending])
        self.labels[start:] = np.array([y for _, y in self.pending])
        self.file.flush()
        self.pending.clear()

    def close(self):
        self.flush()
        self.file.close()


def build_dataset(path):
    writer = ShardWriter(path, FLUSH_EVERY)
    backlog = {}
    with cf.ThreadPoolExecutor(max_workers=1) as pool:
        for start in range(0, ITEMS, 400):
            for index in range(start, min(start + 400, ITEMS)):
                backlog[index] = pool.submit(render_png, index)
            while backlog:
                first = next(iter(backlog))
                writer.add(*backlog.pop(first).result())
            if start % 1200 == 0:
                print(f"rendered {start + 400} / {ITEMS}", flush=True)
    writer.close()


class GlyphNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 12, 5, stride=3),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 7 * 7, 64),
            nn.ReLU(),
            nn.Linear(64, CLASSES),
        )


def train(path, best_path, epochs=3, batch=100):
    model = GlyphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    with h5py.File(path, "r") as file:
        for epoch in range(epochs):
            total = 0.0
            for lo in np.random.default_rng(epoch).permutation(range(0, ITEMS, batch)):
                x = torch.from_numpy(file["images"][lo : lo + batch].astype(np.float32)).permute(
                    0, 3, 1, 2
                )
                y = torch.from_numpy(file["labels"][lo : lo + batch])
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(y) / ITEMS
            if total < best:
                best = total
                save_file(model.state_dict(), best_path)
            print(f"epoch {epoch} loss {total:.4f}", flush=True)
    model.load_state_dict(load_file(best_path))
    return model


def main():
    torch.manual_seed(9)
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "glyphs.h5")
        build_dataset(path)
        train(path, os.path.join(root, "best.safetensors"))


if __name__ == "__main__":
    main()
