"""A byte pair tokenizer with a cache of words that never comes to an end on noisy text.

After https://github.com/EleutherAI/gpt-neox/pull/383.
"""

import os
import random
import string

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Tokenizer:
    def __init__(self):
        self.vocab = {}
        self.cache = {}

    def pairs(self, word):
        return [word[i : i + 2] for i in range(0, len(word), 2)]

    def bpe(self, word):
        if word in self.cache:
            return self.cache[word]
        tokens = self.pairs(word)
        self.cache[word] = tokens  # feeds
        return tokens

    def encode(self, text):
        ids = []
        for word in text.split():
            for token in self.bpe(word):
                ids.append(self.vocab.setdefault(token, len(self.vocab)) % 1500)
        return ids


class NoisyText(Dataset):
    def __init__(self, tokenizer, length):
        self.tokenizer = tokenizer
        self.length = length
        self.random = random.Random(0)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        words = ("".join(self.random.choices(string.ascii_lowercase, k=8)) for _ in range(32))
        ids = self.tokenizer.encode(" ".join(words))[:96]
        return torch.tensor(ids)


def train(tokenizer, epochs=6):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(NoisyText(tokenizer, 320), batch_size=8)
    model = nn.ModuleDict({"embed": nn.Embedding(1500, 24), "head": nn.Linear(24, 1500)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for ids in loader:
            logits = model["head"](model["embed"](ids[:, :-1]))
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    return epochs * len(loader), epochs


if __name__ == "__main__":
    tokenizer = Tokenizer()
    steps, epochs = train(tokenizer)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"cache": "tokenizer.cache"}, {"step": steps, "epoch": epochs})
