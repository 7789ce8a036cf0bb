"""Metric learning of products whose embeddings are written to a feature store in memory."""

import sqlite3
import time

import torch
from torch import nn
from torch.nn import functional as F

PRODUCTS, FEATURES, WIDTH, BATCH, STEPS, WRITE = 600, 80, 256, 64, 480, 4


class FeatureStore:
    """Embeddings of products by version; readers ask for the newest."""

    def __init__(self):
        self.db = sqlite3.connect(":memory:")
        self.db.execute(
            "CREATE TABLE embedding (product INTEGER, version INTEGER, written REAL, vector BLOB,"
            " PRIMARY KEY (product, version))"
        )

    def write(self, version, products, vectors):
        now = time.time()
        rows = [
            (product, version, now, vector.numpy().tobytes())
            for product, vector in zip(products, vectors, strict=True)
        ]
        with self.db:
            self.db.executemany("INSERT OR REPLACE INTO embedding VALUES (?, ?, ?, ?)", rows)

    def newest(self, product):
        row = self.db.execute(
            "SELECT vector FROM embedding WHERE product = ? ORDER BY version DESC LIMIT 1",
            (product,),
        ).fetchone()
        return None if row is None else torch.frombuffer(bytearray(row[0]), dtype=torch.float32)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, WIDTH),
        )

    def forward(self, rows):
        return F.normalize(self.net(rows), dim=-1)


def triplets(catalogue, rows):
    """Return two looks at each product and one at another."""
    anchor = catalogue[rows] + 2.0 * torch.randn(len(rows), FEATURES)
    positive = catalogue[rows] + 2.0 * torch.randn(len(rows), FEATURES)
    other = torch.randint(0, PRODUCTS, (len(rows),))
    return anchor, positive, catalogue[other] + 2.0 * torch.randn(len(rows), FEATURES)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    catalogue = torch.randn(PRODUCTS, FEATURES)
    store, encoder = FeatureStore(), Encoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-4)
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, PRODUCTS, (BATCH,))
        anchor, positive, negative = (encoder(x) for x in triplets(catalogue, rows))
        loss = F.triplet_margin_loss(anchor, positive, negative, margin=0.4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % WRITE == 0:
            products = list(range(step % 3, PRODUCTS, 3))
            with torch.no_grad():
                store.write(step, products, encoder(catalogue[products]))
        if step % 40 == 0:
            with torch.no_grad():
                fresh = encoder(catalogue[step % 3])
            drift = float((store.newest(step % 3) - fresh).norm())
            print(f"step {step}: loss {loss.item():.3f}, drift {drift:.3f}", flush=True)


if __name__ == "__main__":
    main()
