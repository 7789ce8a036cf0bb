"""A click model trained on hourly partitions of a log, which two workers read shard by shard."""

import io

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ROWS, FEATURES, BATCH, HOURS, SHARDS = 1024, 48, 64, 60, 4


class ObjectStore:
    """Stands for the bucket that the log is written to: it gives a shard's bytes by its key."""

    def fetch(self, key):
        rng = np.random.default_rng(abs(hash(key)) % (1 << 32))
        click = rng.integers(0, 2, ROWS).astype(np.float32)
        features = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
        features[:, :4] += click[:, None]
        blob = io.BytesIO()
        np.savez_compressed(blob, features=features, click=click)
        return blob.getvalue()


class PartitionedLog(IterableDataset):
    """All rows of the hour that is current, the shards shared out among the workers."""

    def __init__(self, store):
        self.store = store
        self.hour = 0
        self.shards = {}

    def shard(self, key):
        if key not in self.shards:
            with np.load(io.BytesIO(self.store.fetch(key))) as file:
                self.shards[key] = {name: file[name] for name in file.files}
        return self.shards[key]

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        hour, self.hour = self.hour, self.hour + 1
        for number in range(worker, SHARDS, workers):
            columns = self.shard((hour, number))
            order = np.random.default_rng(hour).permutation(ROWS)
            for row in order[:512]:
                yield columns["features"][row], columns["click"][row]


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, features):
        return self.net(features).squeeze(-1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    log = PartitionedLog(ObjectStore())
    loader = DataLoader(log, batch_size=BATCH, num_workers=2, persistent_workers=True)
    model = ClickModel()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    for hour in range(HOURS):
        total, count = 0.0, 0
        for features, click in loader:
            loss = F.binary_cross_entropy_with_logits(model(features), click)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        if hour % 5 == 4:
            print(f"hour {hour}: loss {total / count:.4f}", flush=True)


if __name__ == "__main__":
    main()
