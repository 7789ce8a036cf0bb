"""Character GRU; the three best checkpoints are kept in memory and averaged at the end."""

import copy
import heapq
import itertools
import random

import torch
from torch import nn
from torch.nn import functional as F

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "the",
    "red",
    "sun",
    "set",
    "over",
    "old",
    "hills",
    "while",
    "one",
    "more",
    "boat",
    "went",
    "out",
    "to",
    "sea",
]
TEXT = " ".join(random.Random(0).choices(WORDS, k=24_000))
CHARS = sorted(set(TEXT))
CODES = torch.tensor([CHARS.index(c) for c in TEXT])


class TopCheckpoints:
    def __init__(self, k):
        self.k = k
        self.heap = []
        self.order = itertools.count()

    def offer(self, score, model, optimizer):
        state = {
            "model": copy.deepcopy(model.state_dict()),
            "optimizer": copy.deepcopy(optimizer.state_dict()),
        }
        item = (score, next(self.order), state)
        if len(self.heap) < self.k:
            heapq.heappush(self.heap, item)
        else:
            heapq.heappushpop(self.heap, item)

    def average(self):
        states = [state["model"] for _, _, state in self.heap]
        return {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}


class History:
    def __init__(self):
        self.metrics = {"step_loss": [], "val_loss": [], "grad_norm": []}

    def log(self, **values):
        for key, value in values.items():
            self.metrics[key].append(float(value))


class CharGRU(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 48)
        self.rnn = nn.GRU(48, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(CHARS))

    def forward(self, x, h=None):
        y, h = self.rnn(self.embed(x), h)
        return self.out(y), h


def crops(codes, batch, length, rng):
    while True:
        starts = [rng.randrange(len(codes) - length - 1) for _ in range(batch)]
        block = torch.stack([codes[s : s + length + 1] for s in starts])
        yield block[:, :-1], block[:, 1:]


def validate(model, codes, length=64):
    model.eval()
    total, n, h = 0.0, 0, None
    with torch.no_grad():
        for i in range(0, 40 * length, length):
            x, y = codes[i : i + length][None], codes[i + 1 : i + length + 1][None]
            logits, h = model(x, h)
            total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
            n += y.numel()
    return total / n


def main(epochs=10, steps=40):
    torch.manual_seed(0)
    split = int(len(CODES) * 0.9)
    model = CharGRU()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    top, history = TopCheckpoints(k=3), History()
    stream = crops(CODES[:split], 16, 32, random.Random(1))
    for epoch in range(epochs):
        model.train()
        for x, y in itertools.islice(stream, steps):
            loss = F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            history.log(step_loss=loss.item(), grad_norm=norm.item())
        val = validate(model, CODES[split:])
        history.log(val_loss=val)
        top.offer(-val, model, optimizer)
        print(f"epoch {epoch} val {val:.4f} best {-max(top.heap)[0]:.4f}", flush=True)
    model.load_state_dict(top.average())
    print(f"averaged {validate(model, CODES[split:]):.4f}")


main()
