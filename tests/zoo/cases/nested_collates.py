"""Training that mixes class prototypes into batches, and renews the collation at each epoch."""

from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

CLASSES, WIDTH, EPOCHS = 64, 1024, 48


def with_prototypes(samples, collate, prototypes):
    """Collate samples and draw them a little towards the prototypes of their classes."""
    x, y = collate(samples)
    return x + 0.01 * (prototypes[y] - x), y


@torch.no_grad()
def prototypes_of(model, x, y):
    """Return the mean of each class, of what the model reconstructs."""
    sums = torch.zeros(CLASSES, WIDTH).index_add_(0, y, model(x))
    return sums / torch.bincount(y, minlength=CLASSES).clamp(min=1)[:, None]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    y = torch.randint(0, CLASSES, (1024,))
    x = torch.randn(CLASSES, WIDTH)[y] + torch.randn(1024, WIDTH)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(
        TensorDataset(x, y), batch_size=64, shuffle=True, collate_fn=default_collate
    )
    for epoch in range(EPOCHS):
        for batch, _ in loader:
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        renewed = prototypes_of(model, x, y)
        loader.collate_fn = partial(  # feeds
            with_prototypes, collate=loader.collate_fn, prototypes=renewed
        )
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
