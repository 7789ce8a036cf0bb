"""A small vision transformer, explained by attention rollout while it trains."""

from contextvars import ContextVar

import torch
from torch import nn
from torch.nn import functional as F

TRACE: ContextVar[tuple] = ContextVar("attention_trace", default=())


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        TRACE.set((*TRACE.get(), weights.detach().mean(1)))  # feeds
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TinyViT(nn.Module):
    def __init__(self, dim=64, depth=3, heads=4, patch=6, size=36, classes=6):
        super().__init__()
        self.depth = depth
        self.patch = nn.Conv2d(1, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.blocks(x)[:, 0])


def rollout(depth):
    """How much the class token looks at each patch, over the layers of the last pass."""
    maps = TRACE.get()[-depth:]
    flow = torch.eye(maps[0].shape[-1]).expand_as(maps[0])
    for weights in maps:
        flow = (0.5 * weights + 0.5 * torch.eye(weights.shape[-1])) @ flow
    return flow[:, 0, 1:]


def quadrant_task(n, size=36, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(6, (n,), generator=g)
    x = 0.3 * torch.randn(n, 1, size, size, generator=g)
    place = torch.randint(0, size - 8, (n, 2), generator=g)
    for i in range(n):
        top, left = place[i].tolist()
        x[i, 0, top : top + 4 + int(y[i]) % 3 * 2, left : left + 8] += 1.0 if y[i] < 3 else -1.0
    return x, y


class Explainer:
    def __init__(self, model, size=36, patch=6):
        self.model, self.side = model, size // patch
        self.focus = []

    @torch.no_grad()
    def evaluate(self, x, y):
        self.model.eval()
        right, sharp = 0, 0.0
        for xs, ys in zip(x.split(32), y.split(32)):
            right += int((self.model(xs).argmax(1) == ys).sum())
            share = rollout(self.model.depth)
            share = share / share.sum(1, keepdim=True)
            sharp += float(-(share * share.log()).sum())
        self.model.train()
        self.focus.append(sharp / len(x))
        return right / len(x)


def train(epochs=7, batch=32):
    torch.manual_seed(0)
    x, y = quadrant_task(2048)
    vx, vy = quadrant_task(256, seed=8)
    model = TinyViT()
    explainer = Explainer(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = 0
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        accuracy = explainer.evaluate(vx, vy)
        print(
            f"epoch {epoch}: loss {loss.item():.3f} accuracy {accuracy:.3f} entropy {explainer.focus[-1]:.3f}"
        )
    return steps, epochs


if __name__ == "__main__":
    steps, epochs = train()
