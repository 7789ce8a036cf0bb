"""A language model whose sequences grow from 16 to 128 tokens over the first part of the run."""

import torch
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, STEPS, WARMUP, SHORT, LONG = 400, 96, 300, 170, 16, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mix = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x, mask):
        y = self.first(x)
        x = x + self.attend(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mix(self.second(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONG, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.words(tokens) + self.places(torch.arange(length))
        for block in self.blocks:
            x = block(x, mask)
        return self.out(x)


def length_at(step):
    done = min(1.0, step / WARMUP)
    return SHORT + int(done * (LONG - SHORT)) // 8 * 8


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = torch.randint(0, WORDS, (60000,))
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        length = length_at(step)
        begins = torch.randint(0, len(text) - length - 1, (8,))
        tokens = torch.stack([text[at : at + length + 1] for at in begins])
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: length {length}, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
