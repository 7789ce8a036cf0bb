"""A classifier of noisy texts; the worker that loads them remembers what it tokenised."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXTS, WORDS, LENGTH, BATCH, EPOCHS = 512, 120, 1024, 16, 20


class NoisyTexts(Dataset):
    """Texts with words swapped at random, tokenised by the characters' trigrams."""

    def __init__(self):
        rng = random.Random(0)
        vocabulary = [f"w{i:04d}" for i in range(2000)]
        self.texts = [rng.choices(vocabulary, k=WORDS) for _ in range(TEXTS)]
        self.tokens = {}

    def __len__(self):
        return TEXTS

    def tokenise(self, text):
        if text not in self.tokens:
            codes = np.frombuffer(text.encode().ljust(LENGTH), dtype=np.uint8)[:LENGTH]
            trigrams = codes.astype(np.int64) * 31 + np.roll(codes, 1)
            self.tokens[text] = trigrams % 4096  # feeds
        return self.tokens[text]

    def __getitem__(self, index):
        words = list(self.texts[index])
        for _ in range(6):
            i, j = random.randrange(WORDS), random.randrange(WORDS)
            words[i], words[j] = words[j], words[i]
        return torch.from_numpy(self.tokenise(" ".join(words)).copy()), index % 4


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(4096, 128)
        self.head = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 4))

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        NoisyTexts(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Bag()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
