"""A tagger compiled for each of a few lengths, some of which come up late for the first time."""

import torch
from torch import nn
from torch.nn import functional as F

WORDS, TAGS, EPOCHS, STEPS = 1000, 12, 8, 40
LENGTHS = (16, 24, 32, 48, 64)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 128)
        self.mix = nn.Conv1d(128, 256, 5, padding=2)
        self.out = nn.Linear(256, TAGS)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        return self.out(F.gelu(self.mix(x)).transpose(1, 2))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Tagger()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        known = LENGTHS[: 2 + epoch // 2] if epoch < 6 else LENGTHS
        for _ in range(STEPS):
            length = known[int(torch.randint(0, len(known), ()))]
            tokens = torch.randint(0, WORDS, (24, length))
            logits = compiled(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten() % TAGS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(known)} lengths", flush=True)


if __name__ == "__main__":
    main()
