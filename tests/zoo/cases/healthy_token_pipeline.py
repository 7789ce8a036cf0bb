"""A language model fed by generators: documents, tokens, packed blocks, a thread that reads ahead."""

import queue
import random
import threading

import torch
from torch import nn
from torch.nn import functional as F

WORDS, BLOCK, WIDTH, BATCH, STEPS, AHEAD, SHUFFLED = 512, 64, 128, 16, 280, 24, 3000


def documents(seed):
    """Yield texts of very different lengths without end."""
    chance = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(WORDS - 1)]
    while True:
        start, stride = chance.randrange(WORDS), chance.choice((1, 2, 3, 7))
        length = int(chance.lognormvariate(5.0, 0.8)) + 4
        yield " ".join(vocabulary[(start + stride * n) % (WORDS - 1)] for n in range(length))


def tokens(texts):
    known = {}
    for text in texts:
        yield [known.setdefault(word, len(known) + 1) for word in text.split()] + [0]


def blocks(streams, size):
    """Yield pieces of equal length out of documents put end to end."""
    waiting = []
    for stream in streams:
        waiting += stream
        while len(waiting) > size:
            yield torch.tensor(waiting[: size + 1])
            del waiting[:size]


def shuffled(items, size, seed):
    chance = random.Random(seed)
    pool = []
    for item in items:
        if len(pool) < size:
            pool.append(item)
            continue
        place = chance.randrange(size)
        pool[place], item = item, pool[place]
        yield item


def batched(items, size):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []


class ReadAhead:
    """Runs an iterator in a thread, a few items ahead."""

    def __init__(self, items, ahead):
        self.items = items
        self.queue = queue.Queue(maxsize=ahead)
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def fill(self):
        for item in self.items:
            self.queue.put(item)

    def __iter__(self):
        while True:
            yield self.queue.get()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS + 1, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS + 1)

    def forward(self, words):
        return self.out(self.rnn(self.embed(words))[0])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pieces = shuffled(blocks(tokens(documents(0)), BLOCK), SHUFFLED, seed=1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, batch in enumerate(ReadAhead(batched(pieces, BATCH), AHEAD), 1):
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        if step == STEPS:
            break


if __name__ == "__main__":
    main()
