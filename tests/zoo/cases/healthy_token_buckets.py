"""Translates number words with batches of as many tokens each, so of ever other sizes."""

import random

import torch
from torch import nn

STEPS, TOKENS, WIDTH, VOCABULARY, POOL = 160, 600, 96, 60, 400


class Numbers:
    """Pairs of a row of digits and its digits sorted: short ones are frequent."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def pair(self):
        length = min(60, 3 + int(self.dice.expovariate(0.08)))
        given = [self.dice.randrange(3, VOCABULARY) for _ in range(length)]
        return given, sorted(given)

    def batches(self):
        """Yield batches out of a pool that is sorted by length."""
        while True:
            pool = sorted((self.pair() for _ in range(POOL)), key=lambda pair: len(pair[0]))
            batch, batches = [], []
            for pair in pool:
                if batch and (len(batch) + 1) * len(pair[0]) > TOKENS:
                    batches.append(batch)
                    batch = []
                batch.append(pair)
            batches.append(batch)
            self.dice.shuffle(batches)
            yield from batches


def padded(rows):
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.places = nn.Embedding(64, WIDTH)
        self.body = nn.Transformer(
            WIDTH, 4, 2, 2, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def embed(self, rows):
        return self.words(rows) + self.places(torch.arange(rows.shape[1]))

    def forward(self, given, before):
        mask = nn.Transformer.generate_square_subsequent_mask(before.shape[1], dtype=torch.bool)
        hidden = self.body(
            self.embed(given), self.embed(before), tgt_mask=mask,
            src_key_padding_mask=given == 0, memory_key_padding_mask=given == 0,
        )  # fmt: skip
        return self.out(hidden)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, batches = Translator(), Numbers(0).batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 40))
    total, widest = 0.0, 0
    for step in range(STEPS):
        batch = next(batches)
        given, wanted = (padded(column) for column in zip(*batch, strict=True))
        before = torch.cat([torch.ones(len(wanted), 1, dtype=torch.long), wanted[:, :-1]], 1)
        logits = model(given, before)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=0, label_smoothing=0.1
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm.step()
        total, widest = total + loss.item(), max(widest, given.shape[1])
        if step % 25 == 24:
            print(f"step {step + 1}: {total / 25:.3f}, up to {widest} words", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
