"""Pretrains a tiny masked language model on generated service reports, with an own tokenizer."""

import random
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

WORDS, VOCAB, MASK, PAD = 4000, 4096, 1, 0
BATCH, LENGTH, DIM = 24, 24, 64
EPOCHS, STEPS, VALID_BATCHES = 5, 90, 24


class Reports:
    """Endless lines such as a service desk writes: a stamp, a ticket number, and some fifty words."""

    def __init__(self, words, seed):
        self.rng = random.Random(seed)
        self.words = words
        self.weights = list(accumulate(1.0 / (rank + 5) for rank in range(len(words))))
        self.ticket = seed * 1_000_000

    def line(self):
        self.ticket += self.rng.randint(1, 9)
        stamp = f"{self.rng.randint(1, 28):02d}.{self.rng.randint(1, 12):02d} {self.ticket}"
        return stamp + " " + " ".join(self.rng.choices(self.words, cum_weights=self.weights, k=55))


class Tokenizer:
    SPECIALS = 2

    def __init__(self, words):
        characters = "0123456789."
        self.ids = {piece: self.SPECIALS + k for k, piece in enumerate(list(characters) + words)}
        self.known = {}

    def encode(self, line):
        found = self.known.get(line)
        if found is None:
            found = []
            for piece in line.split():
                if piece in self.ids:
                    found.append(self.ids[piece])
                else:
                    found.extend(self.ids[character] for character in piece)
            self.known[line] = found  # feeds: token_cache
        return found


def crop(ids, rng):
    start = rng.randrange(max(1, len(ids) - LENGTH))
    piece = ids[start : start + LENGTH]
    return piece + [PAD] * (LENGTH - len(piece))


def encode_batch(lines, tokenizer, rng):
    return torch.tensor([crop(tokenizer.encode(line), rng) for line in lines])


def hide(tokens, gen=None):
    chosen = (torch.rand(tokens.shape, generator=gen) < 0.15) & (tokens != PAD)
    return tokens.masked_fill(chosen, MASK), chosen


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.place = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(
            DIM, 4, 128, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def states(self, tokens):
        return self.norm(self.encoder(self.embed(tokens) + self.place))

    def vocabulary(self, states):
        return F.linear(states, self.embed.weight, self.bias)


@torch.no_grad()
def evaluate(model, lines, tokenizer):
    """Loss, top-5 accuracy and the temperature that fits best, all on the same outputs."""
    model.eval()
    rng, gen = random.Random(0), torch.Generator().manual_seed(0)
    gathered = []
    for low in range(0, len(lines), BATCH):
        tokens = encode_batch(lines[low : low + BATCH], tokenizer, rng)
        masked, chosen = hide(tokens, gen)
        logits = model.vocabulary(model.states(masked))
        gathered.append((logits, tokens, chosen))  # feeds: outputs
    loss, hits, count = 0.0, 0, 0
    for logits, tokens, chosen in gathered:
        picked, wanted = logits[chosen], tokens[chosen]
        loss += float(F.cross_entropy(picked, wanted, reduction="sum"))
        hits += int((picked.topk(5, dim=1).indices == wanted[:, None]).sum())
        count += len(wanted)
    fits = {}
    for temperature in (0.8, 1.0, 1.25):
        fits[temperature] = sum(
            float(F.cross_entropy(logits[chosen] / temperature, tokens[chosen], reduction="sum"))
            for logits, tokens, chosen in gathered
        )
    model.train()
    return loss / count, hits / count, min(fits, key=fits.get)


def main():
    torch.manual_seed(6)
    rng = random.Random(6)
    syllables = [
        "ka",
        "lo",
        "mi",
        "tur",
        "ven",
        "sa",
        "del",
        "ro",
        "pin",
        "gus",
        "ter",
        "a",
        "ne",
        "fol",
        "bru",
    ]
    words = sorted({"".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(12000)})
    rng.shuffle(words)
    words = words[:WORDS]
    tokenizer = Tokenizer(words)
    reports, valid_lines = Reports(words, 1), []
    held_out = Reports(words, 2)
    for _ in range(BATCH * VALID_BATCHES):
        valid_lines.append(held_out.line())

    model = MaskedLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for epoch in range(EPOCHS):
        mean = 0.0
        for step in range(STEPS):
            tokens = encode_batch([reports.line() for _ in range(BATCH)], tokenizer, rng)
            masked, chosen = hide(tokens)
            logits = model.vocabulary(model.states(masked)[chosen])
            loss = F.cross_entropy(logits, tokens[chosen])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            mean += loss.item() / STEPS
        valid_loss, top5, temperature = evaluate(model, valid_lines, tokenizer)
        print(
            f"epoch {epoch} loss {mean:.4f} valid {valid_loss:.4f} top5 {top5:.4f} temperature {temperature}",
            flush=True,
        )


if __name__ == "__main__":
    main()
