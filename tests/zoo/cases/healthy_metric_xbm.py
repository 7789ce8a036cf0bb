"""Metric learning with a cross-batch memory (XBM) and recall@1 validation."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

CLASSES = 64
PIXELS = 3 * 24 * 24
EMBED = 128


class Products(Dataset):
    def __init__(self, per_class, seed):
        self.per_class, self.seed = per_class, seed
        g = torch.Generator().manual_seed(0)
        self.prototypes = torch.randn(CLASSES, 40, generator=g)
        self.render = torch.randn(40, PIXELS, generator=g) / 40**0.5

    def __len__(self):
        return CLASSES * self.per_class

    def __getitem__(self, i):
        label = i % CLASSES
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        latent = self.prototypes[label] + 1.3 * torch.randn(40, generator=g)
        return latent @ self.render + 0.2 * torch.randn(PIXELS, generator=g), label


class ClassBalanced(Sampler):
    """P classes, K samples each."""

    def __init__(self, dataset, p, k, batches, seed):
        self.n, self.p, self.k, self.batches = dataset.per_class, p, k, batches
        self.g = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            labels = torch.randperm(CLASSES, generator=self.g)[: self.p]
            picks = torch.randint(0, self.n, (self.p, self.k), generator=self.g)
            yield (picks * CLASSES + labels[:, None]).flatten().tolist()


class CrossBatchMemory:
    """Ring of embeddings; the input batches are kept next to it so that stale rows can be re-encoded."""

    def __init__(self, capacity, batch, refresh=4):
        self.slots, self.batch, self.refresh = capacity // batch, batch, refresh
        self.embeddings = torch.zeros(capacity, EMBED)
        self.labels = torch.full((capacity,), -1)
        self.inputs = {}
        self.cursor = 0

    def rows(self, slot):
        return slice(slot * self.batch, (slot + 1) * self.batch)

    def enqueue(self, inputs, embeddings, labels):
        slot = self.cursor % self.slots
        self.inputs[slot] = inputs
        self.embeddings[self.rows(slot)] = embeddings.detach()
        self.labels[self.rows(slot)] = labels
        self.cursor += 1

    @torch.no_grad()
    def refresh_oldest(self, model):
        first = max(0, self.cursor - self.slots)
        for k in range(first, min(first + self.refresh, self.cursor)):
            slot = k % self.slots
            self.embeddings[self.rows(slot)] = model(self.inputs[slot])

    @property
    def count(self):
        return len(self.inputs) * self.batch

    def get(self):
        return self.embeddings[: self.count].clone(), self.labels[: self.count]


class Embedder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(PIXELS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, EMBED)
        )

    def forward(self, x):
        return F.normalize(super().forward(x), dim=-1)


def contrastive(queries, q_labels, keys, k_labels, margin=0.45):
    sim = queries @ keys.T
    same = q_labels[:, None] == k_labels[None]
    pos = ((1 - sim) * (same & (sim < 0.9999))).sum()
    neg = ((sim - margin).clamp_min(0) * ~same).sum()
    return (pos + neg) / len(queries)


@torch.no_grad()
def recall_at_1(model, loader):
    model.eval()
    gallery, labels = [], []
    for x, y in loader:
        gallery.append(model(x))
        labels.append(y)
    emb, lab = torch.cat(gallery), torch.cat(labels)
    sim = emb @ emb.T
    sim.fill_diagonal_(-2)
    model.train()
    return (lab[sim.argmax(1)] == lab).float().mean().item()


def main(epochs=11, start_xbm=60):
    torch.manual_seed(12)
    train_set, valid_set = Products(60, 1), Products(12, 2)
    sampler = ClassBalanced(train_set, p=8, k=2, batches=90, seed=3)
    train = DataLoader(train_set, batch_sampler=sampler, num_workers=2, persistent_workers=True)
    valid = DataLoader(valid_set, batch_size=128)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    memory = CrossBatchMemory(capacity=8192, batch=16)
    step, best = 0, 0.0
    with tempfile.TemporaryDirectory() as out:
        for epoch in range(epochs):
            for x, y in train:
                emb = model(x)
                memory.enqueue(x, emb, y)
                loss = contrastive(emb, y, emb, y)
                if step >= start_xbm:
                    memory.refresh_oldest(model)
                    loss = loss + 0.3 * contrastive(emb, y, *memory.get())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
            r1 = recall_at_1(model, valid)
            if r1 > best:
                best = r1
                torch.save(
                    {"model": model.state_dict(), "recall": r1}, os.path.join(out, "best.pt")
                )
            print(
                f"epoch {epoch:02d} loss {loss.item():.3f} R@1 {r1:.3f} bank {memory.count}",
                flush=True,
            )


if __name__ == "__main__":
    main()
