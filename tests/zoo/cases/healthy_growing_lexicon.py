"""Learns embeddings of words from a stream of articles; new words get a place when they are met."""

import random
from collections import Counter

import torch
from torch import nn


class Articles:
    """Topics with words of their own; most words turn up early, some late."""

    def __init__(self, seed, words=12000, topics=40):
        self.random = random.Random(seed)
        names = [f"w{n:05d}" for n in range(words)]
        self.topics = [self.random.sample(names, 600) for _ in range(topics)]

    def article(self, length=400):
        topic = self.random.choice(self.topics)
        return [topic[int(600 * self.random.random() ** 2)] for _ in range(length)]


class Lexicon:
    """Numbers of words by order of appearance, their counts, and the windows they were seen in."""

    def __init__(self, size):
        self.size = size
        self.number = {}
        self.count = Counter()
        self.example = {}

    def encode(self, words):
        for at, word in enumerate(words):
            if word not in self.number and len(self.number) < self.size:
                self.number[word] = len(self.number)
                self.example[word] = " ".join(words[max(0, at - 150) : at + 150])
        self.count.update(words)
        return torch.tensor([self.number[word] for word in words if word in self.number])


class SkipGram(nn.Module):
    def __init__(self, size, width=64):
        super().__init__()
        self.centre, self.context = nn.Embedding(size, width), nn.Embedding(size, width)
        nn.init.zeros_(self.context.weight)

    def forward(self, centre, context, others):
        at = self.centre(centre)
        near = (at * self.context(context)).sum(-1)
        far = torch.einsum("nd,nkd->nk", at, self.context(others))
        sigmoid = nn.functional.logsigmoid
        return -(sigmoid(near).mean() + sigmoid(-far).mean(-1).mean())


def pairs(codes, window=4):
    shift = random.randrange(1, window + 1)
    return codes[:-shift], codes[shift:]


def train(steps=700, size=12000):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    articles, lexicon, model = Articles(0), Lexicon(size), SkipGram(size)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        centre, context = pairs(lexicon.encode(articles.article()))
        others = torch.randint(0, len(lexicon.number), (len(centre), 5))
        loss = model(centre, context, others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 70 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {len(lexicon.number)} words", flush=True)


if __name__ == "__main__":
    train()
