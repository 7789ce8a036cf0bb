"""An inference loop with a traced model per bucket of lengths: the rare ones come late."""

import random
import time
import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(300, 64)
        self.conv = nn.Conv1d(64, 64, 3, padding=1)
        self.out = nn.Linear(64, 9)

    def forward(self, tokens):
        h = torch.relu(self.conv(self.embed(tokens).transpose(1, 2)))
        return self.out(h.transpose(1, 2)).argmax(-1)


class BucketRunner:
    def __init__(self, model, width=8):
        self.model = model.eval()
        self.width = width
        self.traced = {}

    def run(self, tokens):
        length = -(-len(tokens) // self.width) * self.width
        if length not in self.traced:
            self.traced[length] = torch.jit.trace(
                self.model, torch.zeros(1, length, dtype=torch.long)
            )
        padded = torch.zeros(1, length, dtype=torch.long)
        padded[0, : len(tokens)] = torch.tensor(tokens)
        with torch.inference_mode():
            return self.traced[length](padded)[0, : len(tokens)].tolist()


def main():
    torch.manual_seed(0)
    rng = random.Random(9)
    runner = BucketRunner(Tagger())
    tags = [0] * 9
    for request in range(1500):
        length = min(192, 1 + int(rng.expovariate(1 / 40)))
        for tag in runner.run([rng.randrange(300) for _ in range(length)]):
            tags[tag] += 1
        time.sleep(0.006)
        if request % 250 == 0:
            print(request, "buckets", len(runner.traced), tags)


if __name__ == "__main__":
    main()
