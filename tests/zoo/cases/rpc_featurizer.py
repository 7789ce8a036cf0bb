"""Trains a matcher of products; texts become features in a process of its own, asked over pipes."""

import json
import random
import subprocess
import sys

STEPS, BATCH, BUCKETS, WIDTH = 360, 24, 256, 64


class Featurizer:
    """Hashes letters of texts into buckets; texts that come again are answered at once."""

    def __init__(self):
        self.known = {}

    def features(self, text):
        if text not in self.known:
            row = [0.0] * BUCKETS
            for size in (2, 3):
                for begin in range(len(text) - size + 1):
                    number = 0
                    for letter in text[begin : begin + size]:
                        number = (number * 131 + ord(letter)) % 1000003
                    row[number % BUCKETS] += 1.0
            norm = sum(value * value for value in row) ** 0.5
            self.known[text] = [value / norm for value in row]
        return self.known[text]


def serve():
    featurizer = Featurizer()
    for line in sys.stdin:
        rows = [featurizer.features(text) for text in json.loads(line)]
        print(json.dumps([[round(value, 4) for value in row] for row in rows]), flush=True)


class Remote:
    """The process that answers with features."""

    def __init__(self):
        command = [sys.executable, __file__, "serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def features(self, texts):
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def products(dice, count):
    kinds = [
        "drill",
        "saw",
        "lamp",
        "chair",
        "table",
        "cable",
        "hammer",
        "screw",
        "paint",
        "brush",
        "ladder",
        "glove",
    ]
    colours = ["red", "green", "blue", "black", "white", "grey", "yellow"]
    return [
        f"{dice.choice(colours)} {dice.choice(kinds)} {dice.choice([20, 40, 60])} mm"
        for _ in range(count)
    ]


def misspelt(dice, text):
    """Return a text as people write it: no two are the same."""
    letters = list(text)
    for _ in range(3):
        place = dice.randrange(len(letters))
        letters[place] = dice.choice("abcdefghijklmnopqrstuvwxyz ")
    return "".join(letters) + f" art. {dice.randrange(10**6)}"


def train():
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, remote = random.Random(0), Remote()
    model = nn.Sequential(nn.Linear(BUCKETS, 128), nn.ReLU(), nn.Linear(128, WIDTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = 0.0
    for step in range(STEPS):
        named = products(dice, BATCH)
        written = [misspelt(dice, text) for text in named]
        both = torch.tensor(remote.features(named + written))
        first, second = nn.functional.normalize(model(both), dim=1).chunk(2)
        loss = nn.functional.cross_entropy(first @ second.T / 0.1, torch.arange(BATCH))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 20 == 19:
            print(f"step {step + 1}: {total / 20:.3f}", flush=True)
            total = 0.0
    remote.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else train()
