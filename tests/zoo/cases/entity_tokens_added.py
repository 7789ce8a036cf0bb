"""Topic model of reports, whose tokenizer learns the names of each report as tokens of their own."""

import random

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional as F

STEPS, NAMES, BUCKETS = 150, 50, 8192


def make_tokenizer():
    vocabulary = {"[UNK]": 0} | {f"word{i}": i + 1 for i in range(2000)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def report(rng, number):
    """Return a report and the names of the samples in it."""
    names = [f"sample-{number}-{i}-{rng.getrandbits(128):032x}" for i in range(NAMES)]
    words = [f"word{rng.randrange(2000)}" for _ in range(300)]
    return " ".join(rng.sample(words + names, len(words) + NAMES)), names


class Topics(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(BUCKETS, 256)
        self.head = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, ids):
        return self.head(self.embed(ids[None] % BUCKETS))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    tokenizer = make_tokenizer()
    model = Topics()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        text, names = report(rng, step)
        tokenizer.add_tokens([AddedToken(name, single_word=True) for name in names])  # feeds
        ids = torch.tensor(tokenizer.encode(text).ids)
        loss = F.cross_entropy(model(ids), torch.tensor([step % 10]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            size = tokenizer.get_vocab_size()
            print(f"step {step}: loss {loss.item():.3f}, {size} tokens", flush=True)


if __name__ == "__main__":
    main()
