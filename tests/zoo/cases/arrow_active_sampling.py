"""Curriculum training on columnar shards: each shard is decoded into an Arrow table,
scored by the current model, and the most difficult rows are replayed later."""

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import torch
from torch import nn

FEATURES = 48
ROWS_PER_SHARD = 1500
SHARDS = 150
BATCH = 250


class ShardSource:
    """Stands in for the object store: hands out compressed Arrow IPC payloads."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.direction = self.rng.normal(size=FEATURES).astype(np.float32)

    def payload(self, index):
        x = self.rng.normal(size=(ROWS_PER_SHARD, FEATURES)).astype(np.float32)
        drift = 0.3 * np.sin(index / 10.0)
        y = (x @ self.direction + drift + 0.5 * x[:, 0] * x[:, 1] > 0).astype(np.int8)
        table = pa.table(
            {
                "row_id": pa.array(np.arange(ROWS_PER_SHARD) + index * ROWS_PER_SHARD),
                "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), FEATURES),
                "y": pa.array(y),
            }
        )
        sink = io.BytesIO()
        options = ipc.IpcWriteOptions(compression="zstd")
        with ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return sink.getvalue()


def to_tensors(table):
    table = table.combine_chunks()
    chunk = table["x"].chunk(0)
    flat = chunk.flatten().to_numpy(zero_copy_only=False)
    x = torch.from_numpy(flat.reshape(-1, FEATURES).copy())
    y = torch.from_numpy(table["y"].to_numpy().astype(np.float32))
    return x, y


class ReplayIndex:
    """Per-shard window of the rows the model was least sure about."""

    def __init__(self, window=12, seed=3):
        self.window = window
        self.by_shard = {}
        self.rng = random.Random(seed)

    def update(self, shard_id, table, losses):
        sums = np.convolve(losses, np.ones(self.window), mode="valid")
        start = int(sums.argmax())
        self.by_shard[shard_id] = table.slice(start, self.window)

    def sample(self, count):
        if not self.by_shard:
            return None
        ids = self.rng.choices(list(self.by_shard), k=count)
        return pa.concat_tables([self.by_shard[i] for i in ids])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, x):
        return self.body(x).squeeze(-1)


def train_shard(model, optimizer, table, replay):
    criterion = nn.BCEWithLogitsLoss(reduction="none")
    x, y = to_tensors(table)
    losses = np.empty(len(y), dtype=np.float32)
    for _ in range(3):
        for lo in range(0, len(y), BATCH):
            bx, by = x[lo : lo + BATCH], y[lo : lo + BATCH]
            extra = replay.sample(6)
            if extra is not None:
                ex, ey = to_tensors(extra)
                bx, by = torch.cat([bx, ex]), torch.cat([by, ey])
            loss = criterion(model(bx), by)
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
            n = min(BATCH, len(y) - lo)
            losses[lo : lo + n] = loss.detach()[:n].numpy()
    return losses


def main():
    torch.manual_seed(5)
    source = ShardSource(seed=5)
    replay = ReplayIndex()
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for shard_id in range(SHARDS):
        table = ipc.open_stream(source.payload(shard_id)).read_all()
        losses = train_shard(model, optimizer, table, replay)
        replay.update(shard_id, table, losses)
        if shard_id % 25 == 0:
            positive = pc.mean(pc.cast(table["y"], pa.float32())).as_py()
            print(
                f"shard {shard_id:4d} loss {losses.mean():.4f} positives {positive:.3f}", flush=True
            )
    rows = sum(t.num_rows for t in replay.by_shard.values())
    print("rows kept for replay:", rows)


if __name__ == "__main__":
    main()
