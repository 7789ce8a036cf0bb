"""Small vision transformer with an event bus; attention pictures are drawn by whoever listens
to `run_end`.
"""

import functools
import itertools
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    epochs: int = 10
    steps_per_epoch: int = 75
    val_batches: int = 6
    batch: int = 32
    tokens: int = 36
    patch_dim: int = 48
    width: int = 64
    heads: int = 4
    depth: int = 2
    classes: int = 5


@dataclass
class EventBus:
    listeners: dict = field(default_factory=dict)

    def on(self, event, listener, priority=0):
        self.listeners.setdefault(event, {}).setdefault(priority, []).append(listener)  # feeds

    def emit(self, event, **facts):
        for priority in sorted(self.listeners.get(event, {}), reverse=True):
            for listener in self.listeners[event][priority]:
                listener(**facts)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * (w // self.heads) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, w)), weights


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.attn = Attention(s.width, s.heads)
        self.mlp = nn.Sequential(
            nn.Linear(s.width, 2 * s.width), nn.GELU(), nn.Linear(2 * s.width, s.width)
        )

    def forward(self, x):
        y, weights = self.attn(self.norm1(x))
        x = x + y
        return x + self.mlp(self.norm2(x)), weights


class TinyViT(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Linear(s.patch_dim, s.width)
        self.pos = nn.Parameter(torch.zeros(1, s.tokens, s.width))
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.depth))
        self.head = nn.Linear(s.width, s.classes)

    def forward(self, x):
        x, maps = self.embed(x) + self.pos, []
        for block in self.blocks:
            x, weights = block(x)
            maps.append(weights)
        return self.head(x.mean(1)), maps


def patches(s, generator):
    while True:
        y = torch.randint(s.classes, (s.batch,), generator=generator)
        yield (
            torch.randn(s.batch, s.tokens, s.patch_dim, generator=generator)
            + y[:, None, None] * 0.05,
            y,
        )


def entropy_of(maps, epoch, out=print, **_):
    entropy = [-(m * m.clamp_min(1e-9).log()).sum(-1).mean().item() for m in maps]
    out(f"attention entropy after epoch {epoch}: " + " ".join(f"{e:.3f}" for e in entropy))


def run(s):
    torch.manual_seed(2)
    bus, model = EventBus(), TinyViT(s)
    bus.on(
        "epoch_end",
        lambda epoch, accuracy, **_: print(f"epoch {epoch} accuracy {accuracy:.3f}", flush=True),
    )
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    train_stream, val_stream = (
        patches(s, torch.Generator().manual_seed(1)),
        patches(s, torch.Generator().manual_seed(9)),
    )
    for epoch in range(s.epochs):
        model.train()
        for x, y in itertools.islice(train_stream, s.steps_per_epoch):
            loss = F.cross_entropy(model(x)[0], y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in itertools.islice(val_stream, s.val_batches):
                logits, maps = model(x)
                right += (logits.argmax(1) == y).sum().item()
        bus.on("run_end", functools.partial(entropy_of, maps, epoch=epoch), priority=-1)  # feeds
        bus.emit("epoch_end", epoch=epoch, accuracy=right / (s.val_batches * s.batch))
    bus.emit("run_end")


run(Settings())
