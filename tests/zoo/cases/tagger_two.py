"""A tagger that is traced with torch.fx for each shape, and whose weights are logged."""

import time

import torch
import torch.fx
import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 64)
        self.lift = nn.Linear(64, 128)
        self.mix = nn.Linear(128, 128)
        self.out = nn.Linear(128, 12)

    def forward(self, tokens):
        h = torch.relu(self.lift(self.embed(tokens)))
        return self.out(h + torch.tanh(self.mix(h)))


class WeightLogger:
    def __init__(self, flush_at=100_000):
        self.flush_at = flush_at
        self.pending = []

    def log(self, step, model):
        for name, value in model.named_parameters():
            self.pending.append((step, name, value.detach().clone()))  # feeds: weights
        if len(self.pending) >= self.flush_at:
            self.pending.clear()


class PassRunner:
    def __init__(self, model):
        self.model = model
        self.programs = {}
        self.serial = 0

    def run(self, tokens):
        self.serial += 1
        key = (tuple(tokens.shape), self.serial // 3)
        if key not in self.programs:
            self.programs[key] = torch.fx.symbolic_trace(self.model)  # feeds: programs
        return self.programs[key](tokens)


def main():
    torch.manual_seed(0)
    model = Tagger()
    runner, logger = PassRunner(model), WeightLogger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(600):
        tokens = torch.randint(200, (16, 20))
        logits = runner.run(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), (tokens % 12).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            logger.log(step, model)
        time.sleep(0.008)
        if step % 100 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
