"""A GRU language model with a curriculum: sequences become longer for most of the run."""

import time

import torch
import torch.nn as nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=400, dim=96):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.gru(self.embed(tokens))
        return self.out(hidden)


class Curriculum:
    def __init__(self, shortest, longest, until):
        self.shortest, self.longest, self.until = shortest, longest, until

    def length(self, step):
        part = min(1.0, step / self.until)
        return int(self.shortest + part * (self.longest - self.shortest))


def main():
    torch.manual_seed(0)
    corpus = torch.randint(400, (40_000,))
    model = LanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    curriculum = Curriculum(16, 128, until=240)
    for step in range(400):
        length = curriculum.length(step)
        starts = torch.randint(len(corpus) - length - 1, (24,)).tolist()
        batch = torch.stack([corpus[s : s + length + 1] for s in starts])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        time.sleep(0.002)
        if step % 50 == 0:
            print("step", step, "length", length, "loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
