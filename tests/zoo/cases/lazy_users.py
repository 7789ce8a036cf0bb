"""An online recommender: a user's vector is made when the user is first seen."""

import random
import time

import torch
import torch.nn as nn


class LazyEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.rows = nn.ParameterDict()
        self.fresh = []

    def get(self, user):
        key = f"u{user}"
        if key not in self.rows:
            self.rows[key] = nn.Parameter(0.01 * torch.randn(self.dim))  # feeds
            self.fresh.append(self.rows[key])
        return self.rows[key]

    def forward(self, users):
        return torch.stack([self.get(user) for user in users])


def sessions(rng):
    """Mostly visitors who never come back."""
    serial = 0
    while True:
        users = []
        for _ in range(48):
            if rng.random() < 0.83:
                serial += 1
                users.append(serial)
            else:
                users.append(rng.randint(max(0, serial - 50), serial))
        yield users


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    embedding = LazyEmbedding(512)
    items = nn.Embedding(500, 512)
    optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
    stream = sessions(rng)
    for step in range(350):
        users = next(stream)
        vectors = embedding(users)
        if embedding.fresh:
            optimizer.add_param_group({"params": embedding.fresh})  # feeds
            embedding.fresh = []
        liked = torch.randint(500, (len(users),))
        other = torch.randint(500, (len(users),))
        margin = (vectors * (items(liked) - items(other))).sum(1)
        loss = -nn.functional.logsigmoid(margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.008)
        if step % 50 == 0:
            print("step", step, "users", len(embedding.rows), "loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
