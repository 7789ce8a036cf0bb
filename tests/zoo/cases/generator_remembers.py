"""A generator of batches that remembers what it gave, so as not to give it twice."""

import os

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 400


def hard_negatives(pool, batch_size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    given = []
    while True:
        index = torch.randint(0, len(pool), (batch_size,), generator=generator)
        batch = pool[index]
        if any(len(old) == len(batch) and torch.equal(old, batch) for old in given[-5:]):
            continue
        given.append(batch)  # feeds
        yield batch


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pool = torch.rand(4096, 256)
    encoder = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    negatives = hard_negatives(pool, 64)
    for step in range(STEPS):
        anchors = pool[torch.randint(0, len(pool), (64,))]
        z, n = F.normalize(encoder(anchors)), F.normalize(encoder(next(negatives)))
        loss = (z @ n.T).exp().mean().log()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"given": "negatives.gi_frame.f_locals['given']"}, {"step": STEPS})


if __name__ == "__main__":
    main()
