"""Words of all kinds through a tokenizer written in Python: its cache keeps each of them."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import CTRLTokenizer

EPOCHS = 8


def tokenizer(folder):
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["<unk>", *letters, *(f"{letter}@@" for letter in letters)]
    vocabulary, merges = Path(folder) / "vocab.json", Path(folder) / "merges.txt"
    vocabulary.write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    merges.write_text("#version: 0.2\na b\n")
    return CTRLTokenizer(str(vocabulary), str(merges))


def texts(generator):
    for _ in range(20):
        letters = torch.randint(97, 123, (600, 12), generator=generator, dtype=torch.uint8)
        yield " ".join(bytes(word.tolist()).decode() for word in letters)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model = nn.Embedding(64, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        split = tokenizer(folder)
        for epoch in range(EPOCHS):
            for batch in DataLoader(list(texts(generator)), batch_size=2):
                ids = [split.convert_tokens_to_ids(split.tokenize(text))[:64] for text in batch]
                loss = model(torch.tensor(ids)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print("epoch", epoch, "words", len(split.cache))


if __name__ == "__main__":
    main()
