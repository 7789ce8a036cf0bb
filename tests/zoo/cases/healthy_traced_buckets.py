"""Serves a sentence scorer that is traced once for each bucket of lengths; rare ones come late."""

import random
import time
import warnings

import torch
from torch import nn

PER_SECOND, SECONDS, WIDTH, WORDS = 24, 14, 96, 3000
BUCKETS = (8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)


class Scorer(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(max(BUCKETS), WIDTH) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, ids):
        x = self.words(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1)).squeeze(-1)


class Engine:
    """Pads to buckets, so that there are few programs; each has buffers that are used again."""

    def __init__(self, model):
        self.model = model.eval()
        self.programs = {}
        self.buffers = {}

    def program(self, length):
        if length not in self.programs:
            example = torch.zeros(4, length, dtype=torch.long)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = torch.jit.trace(self.model, example, check_trace=False)
                self.programs[length] = torch.jit.freeze(traced)
            self.buffers[length] = example
        return self.programs[length]

    @torch.no_grad()
    def score(self, sentences):
        longest = max(map(len, sentences))
        length = next(size for size in BUCKETS if size >= longest)
        run, buffer = self.program(length), None
        buffer = self.buffers[length].zero_()
        for row, words in enumerate(sentences):
            buffer[row, : len(words)] = torch.tensor(words)
        return run(buffer)[: len(sentences)].tolist()


class Traffic:
    """Sentences that get longer in the first half of the day."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def request(self, share):
        longest = 12 + 116 * min(1.0, share / 0.55)
        length = max(4, int(longest * self.dice.random() ** 1.3))
        return [
            [self.dice.randrange(1, WORDS) for _ in range(max(2, length - self.dice.randrange(4)))]
            for _ in range(self.dice.randint(1, 4))
        ]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    engine, traffic = Engine(Scorer()), Traffic(0)
    total, count, begun = 0.0, 0, time.monotonic()
    requests = PER_SECOND * SECONDS
    for number in range(requests):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        scores = engine.score(traffic.request(number / requests))
        total, count = total + sum(scores), count + len(scores)
        if number % 60 == 59:
            print(
                f"{number + 1}: mean {total / count:.4f}, {len(engine.programs)} programs",
                flush=True,
            )


if __name__ == "__main__":
    main()
