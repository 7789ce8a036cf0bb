"""Models a long text by segments, each of which attends to hidden states of the segments before."""

import random
from collections import Counter

import torch
from torch import nn

STEPS, ACCUMULATE, STREAMS, SEGMENT, REACH, WIDTH, HEADS, LAYERS = 170, 2, 6, 24, 48, 80, 4, 2


def chapters(dice, length):
    """Return letters of a text whose words come from a small vocabulary that drifts."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(dice.choices(letters, k=dice.randrange(2, 8))) for _ in range(160)]
    text = []
    while sum(map(len, text)) < length:
        text.append(words[min(159, int(dice.expovariate(0.05)))] + " ")
        if dice.random() < 0.01:
            words[dice.randrange(160)] = "".join(dice.choices(letters, k=5))
    return "".join(text)[:length]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.pair = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.distance = nn.Parameter(torch.zeros(HEADS, REACH + SEGMENT))

    def split(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x, before):
        both = self.norm(torch.cat([before, x], 1))
        length, past = x.shape[1], before.shape[1]
        keys, values = map(self.split, self.pair(both).chunk(2, -1))
        queries = self.split(self.query(both[:, past:]))
        away = torch.arange(length)[:, None] + past - torch.arange(past + length)
        bias = self.distance[:, away.clamp(0, REACH + SEGMENT - 1)]
        bias = bias.masked_fill((away < 0) | (away >= REACH), -torch.inf)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, bias)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.wide(self.wide_norm(x))


class Recurrent(nn.Module):
    """A decoder that carries hidden states of each layer from segment to segment."""

    def __init__(self, vocabulary):
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, vocabulary)
        self.mems = [torch.zeros(STREAMS, 0, WIDTH) for _ in range(LAYERS)]

    def forward(self, tokens):
        x = self.words(tokens)
        for number, layer in enumerate(self.layers):
            before = self.mems[number]
            self.mems[number] = torch.cat([before, x.detach()], 1)
            x = layer(x, before[:, -REACH:])
        return self.out(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = chapters(random.Random(0), STREAMS * (STEPS * ACCUMULATE * SEGMENT + 1))
    letters = {letter: place for place, letter in enumerate(sorted(Counter(text)))}
    tokens = torch.tensor([letters[letter] for letter in text]).view(STREAMS, -1)
    model = Recurrent(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    total, begin = 0.0, 0
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(ACCUMULATE):
            given = tokens[:, begin : begin + SEGMENT]
            wanted = tokens[:, begin + 1 : begin + SEGMENT + 1]
            loss = nn.functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten())
            (loss / ACCUMULATE).backward()
            total += loss.item() / ACCUMULATE
            begin += SEGMENT
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 24:
            print(f"step {step + 1}: {total / 25:.3f}", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
