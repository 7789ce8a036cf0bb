"""Thumbnail and embedding pipeline for archived camera footage.

decode thread -> bounded queue -> embed thread -> bounded queue -> segment writer (main thread)
"""

import io
import mmap
import queue
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image

W, H = 224, 160
N_FRAMES = 330
SEGMENT = 70
FRAME_PERIOD = 0.065
STOP = object()


class Footage:
    """Frames in one flat file, read through a memory map."""

    def __init__(self, path):
        self.path = path
        self.frame_bytes = W * H * 3

    def index(self):
        return deque(range(self.path.stat().st_size // self.frame_bytes))

    def read(self, n):
        with (
            open(self.path, "rb") as fh,
            mmap.mmap(fh.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            start = n * self.frame_bytes
            return Image.frombytes("RGB", (W, H), view[start : start + self.frame_bytes])


class Stage(threading.Thread):
    def __init__(self, name, work, source, sink):
        super().__init__(name=name, daemon=True)
        self.work, self.source, self.sink = work, source, sink

    def run(self):
        for item in iter(self.source.get, STOP):
            self.sink.put(self.work(item))
        self.sink.put(STOP)


class Embedder:
    def __init__(self):
        torch.manual_seed(2)
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=4), nn.ReLU(), nn.Conv2d(12, 64, 3, stride=2), nn.ReLU()
        ).eval()

    @torch.inference_mode()
    def __call__(self, item):
        n, image = item
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        fmap = self.net(x.unsqueeze(0))[0]
        return n, image, fmap.half()


class SegmentWriter:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.frames = []
        self.novelty = deque(maxlen=SEGMENT)
        self.segments = 0
        self._last = None

    def add(self, n, image, fmap):
        mean = fmap.float().mean((1, 2))
        if self._last is not None:
            self.novelty.append(float((mean - self._last).norm()))
        self._last = mean
        self.frames.append((n, image, fmap))
        if len(self.frames) >= SEGMENT:
            self.flush()

    def flush(self):
        if not self.frames:
            return
        sheet = Image.new("RGB", (56 * 10, 40 * -(-len(self.frames) // 10)))
        for i, (_, image, _) in enumerate(self.frames):
            sheet.paste(image.resize((56, 40)), (56 * (i % 10), 40 * (i // 10)))
        buffer = io.BytesIO()
        sheet.save(buffer, "JPEG", quality=80)
        self.segments += 1
        (self.folder / f"sheet{self.segments:03d}.jpg").write_bytes(buffer.getvalue())
        torch.save(torch.stack([f for _, _, f in self.frames]), self.folder / "latest.pt")
        print(
            f"segment {self.segments}: {len(self.frames)} frames, "
            f"novelty {sum(self.novelty) / len(self.novelty):.4f}"
        )
        self.frames.clear()


def record(path):
    rng = np.random.default_rng(6)
    scene = rng.integers(0, 200, (H, W, 3), dtype=np.uint8)
    with open(path, "wb") as fh:
        for n in range(N_FRAMES):
            fh.write((np.roll(scene, n, axis=1) + np.uint8(n % 50)).tobytes())


def decode(footage, sink):
    todo = footage.index()
    due = time.monotonic()
    while todo:
        n = todo.popleft()
        sink.put((n, footage.read(n)))
        due += FRAME_PERIOD
        time.sleep(max(0.0, due - time.monotonic()))
    sink.put(STOP)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        footage = Footage(Path(tmp, "cam0.rgb"))
        record(footage.path)
        decoded, embedded = queue.Queue(maxsize=16), queue.Queue(maxsize=16)
        reader = threading.Thread(target=decode, args=(footage, decoded), name="decode")
        embed = Stage("embed", Embedder(), decoded, embedded)
        reader.start()
        embed.start()
        writer = SegmentWriter(tmp)
        for item in iter(embedded.get, STOP):
            writer.add(*item)
        writer.flush()
        reader.join()
        embed.join()


if __name__ == "__main__":
    main()
