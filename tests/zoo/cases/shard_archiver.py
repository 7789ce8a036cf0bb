"""Re-encode telemetry shards into per-sensor compressed streams, batch job style."""

import os
import struct
import tempfile
import time
import zlib
from pathlib import Path

import torch

torch.manual_seed(3)
torch.set_num_threads(1)

N_SHARDS = 320
WINDOW = 256
CHANNELS = 8


class Whitening:
    """Running mean / variance per channel, updated shard by shard."""

    def __init__(self, channels):
        self.mean = torch.zeros(channels)
        self.var = torch.ones(channels)
        self.seen = 0

    def __call__(self, x):
        self.seen += 1
        rate = 1.0 / min(self.seen, 50)
        self.mean += rate * (x.mean(0) - self.mean)
        self.var += rate * (x.var(0) - self.var)
        return (x - self.mean) / (self.var.sqrt() + 1e-6)


class ArchiveStream:
    def __init__(self, path):
        self.path = path
        self.encoder = zlib.compressobj(level=6, memLevel=9)
        self.raw_bytes = 0

    def write(self, payload):
        self.raw_bytes += len(payload)
        with open(self.path, "ab") as fh:
            fh.write(self.encoder.compress(struct.pack("<I", len(payload)) + payload))

    def sync(self):
        with open(self.path, "ab") as fh:
            fh.write(self.encoder.flush(zlib.Z_SYNC_FLUSH))


class Archiver:
    def __init__(self, out_dir):
        self.out_dir = Path(out_dir)
        self._streams = {}

    def stream_for(self, device, session):
        key = f"{device}-{session}"
        stream = self._streams.get(key)
        if stream is None:
            stream = ArchiveStream(self.out_dir / f"{key}.z")
            self._streams[key] = stream
        return stream

    def ingest(self, device, session, frames):
        stream = self.stream_for(device, session)
        for frame in frames:
            stream.write(frame.numpy().tobytes())
        stream.sync()
        return stream.path.stat().st_size


def make_shard(path, seed):
    g = torch.Generator().manual_seed(seed)
    steps = torch.randn(WINDOW * 4, CHANNELS, generator=g).mul_(20).round_()
    torch.save({"device": f"dev{seed % 6}", "session": seed // 12, "data": steps.cumsum(0)}, path)


def shards(folder):
    for seed in range(N_SHARDS):
        path = os.path.join(folder, "incoming.pt")
        make_shard(path, seed)
        yield torch.load(path)
        os.unlink(path)


def main():
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "archive")
        os.mkdir(out)
        archiver = Archiver(out)
        whiten = Whitening(CHANNELS)
        written = 0
        start = time.monotonic()
        for n, shard in enumerate(shards(work), 1):
            x = whiten(shard["data"])
            frames = (x.view(-1, WINDOW, CHANNELS) * 64).to(torch.int16).unbind(0)
            written += archiver.ingest(shard["device"], shard["session"], frames)
            if n % 60 == 0:
                print(f"{n} shards, {written / 1e6:.1f} MB on disk, var={whiten.var.mean():.1f}")
            time.sleep(max(0.0, start + n * 0.055 - time.monotonic()))


if __name__ == "__main__":
    main()
