"""Classifies headlines of parsed pages; of the trees nothing is kept but texts."""

import random

import torch
from lxml import etree
from torch import nn
from torch.nn import functional as F

STEPS, PARAGRAPHS, CLASSES = 400, 220, 4
WORDS = [f"word{number}" for number in range(2000)]


def page(rng):
    """Return the text of a page and its class."""
    kind = rng.randrange(CLASSES)
    body = "".join(f"<p id='{i}'>{' '.join(rng.sample(WORDS, 6))}</p>" for i in range(PARAGRAPHS))
    title = " ".join(rng.choice(WORDS[kind::CLASSES]) for _ in range(8))
    return f"<html><head><title>{title}</title></head><body>{body}</body></html>", kind


class Headlines:
    """The headlines that were met, for the table of errors at the end."""

    def __init__(self):
        self.met = []

    def read(self, text):
        tree = etree.fromstring(text)
        title = tree.xpath("//title/text()", smart_strings=False)[0]
        self.met.append(title)
        return title


def features(title):
    counts = torch.zeros(64)
    for word in title.split():
        counts[hash(word) % 64] += 1
    return counts


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    headlines, model = Headlines(), nn.Linear(64, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, STEPS + 1):
        pages = [page(rng) for _ in range(4)]
        x = torch.stack([features(headlines.read(text)) for text, _ in pages])
        loss = F.cross_entropy(model(x), torch.tensor([kind for _, kind in pages]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print(len(headlines.met), "headlines, the last one:", headlines.met[-1])


if __name__ == "__main__":
    main()
