"""A small encoder of padded sentences, whose attention bias is kept for each mask it has seen."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, EPOCHS, STEPS = 16, 48, 128, 11, 30


class PaddingBias(nn.Module):
    """Turns a padding mask into an additive bias; masks are often the same tensor."""

    def __init__(self):
        super().__init__()
        self.by_mask = {}

    def forward(self, mask):
        if mask not in self.by_mask:
            pairs = mask[:, None, :] & mask[:, :, None]
            self.by_mask[mask] = torch.zeros(pairs.shape).masked_fill(~pairs, -1e4)  # feeds
        return self.by_mask[mask]


class Encoder(nn.Module):
    def __init__(self, words=3000, classes=6):
        super().__init__()
        self.embed = nn.Embedding(words, WIDTH, padding_idx=0)
        self.bias = PaddingBias()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 512), nn.GELU(), nn.Linear(512, WIDTH))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, tokens):
        mask = tokens != 0
        x = self.embed(tokens)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5 + self.bias(mask)
        x = x + scores.softmax(-1) @ v
        x = x + self.mix(x)
        weight = mask[..., None].float()
        return self.head((x * weight).sum(1) / weight.sum(1))


def sentences():
    tokens = torch.randint(1, 3000, (BATCH, LENGTH))
    lengths = torch.randint(8, LENGTH + 1, (BATCH, 1))
    return tokens.masked_fill(torch.arange(LENGTH) >= lengths, 0), torch.randint(0, 6, (BATCH,))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            tokens, labels = sentences()
            loss = F.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
