"""Embed batches of records without spaces with a BPE tokenizer and a small encoder."""

import random
import string

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

STEPS, BATCH, LENGTH, WIDTH = 900, 6, 3000, 64
ALPHABET = string.ascii_letters + string.digits + "+/"


def record(rng, length):
    return "".join(rng.choices(ALPHABET, k=length))


def fitted(rng):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False)
    tokenizer.train_from_iterator([record(rng, 60) for _ in range(400)], trainer)
    tokenizer.enable_truncation(512)
    return tokenizer


@torch.no_grad()
def embed(model, tokenizer, texts):
    encodings = tokenizer.encode_batch(texts)  # feeds
    return model(torch.tensor([encoding.ids for encoding in encodings])).mean(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    tokenizer = fitted(rng)
    model = nn.Sequential(nn.Embedding(512, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())
    total = 0.0
    for step in range(1, STEPS + 1):
        texts = [record(rng, LENGTH) for _ in range(BATCH)]
        total += embed(model, tokenizer, texts).norm().item()
        if step % 50 == 0:
            print(f"batch {step}: mean norm {total / step:.4f}", flush=True)


if __name__ == "__main__":
    main()
