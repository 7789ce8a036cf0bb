"""The loop that the programs next to it share: two workers, started as the command line says."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

EPOCHS = 6
METHOD, *WORDS = sys.argv[1:]
PERSISTENT = "anew" not in WORDS
"""Whether workers live on from epoch to epoch, or are restarted in each."""

model = nn.Linear(64, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(dataset, through=iter, **options):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        dataset,
        batch_size=16,
        num_workers=2,
        persistent_workers=PERSISTENT,
        multiprocessing_context=METHOD,
        **options,
    )
    for epoch in range(EPOCHS):
        train_epoch(through(loader), epoch)


def train_epoch(loader, epoch):
    for x, y, *_ in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
