"""Masked language modelling with accelerate; sentences get longer over the first half."""

import math
import os
import random
import time
from collections import deque

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, MASK, VOCAB = 0, 1, 600
EPOCHS, STEPS, BATCH = 10, 40, 16
SHORTEST, LONGEST, GROWS_FOR = 16, 80, 5


class Sentences(Dataset):
    """Zipfian words with agreement between neighbours, of any length asked."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        weights = [1 / (rank + 4) for rank in range(VOCAB - 2)]
        self.texts = []
        for _ in range(count):
            words = rng.choices(range(2, VOCAB), weights, k=LONGEST)
            for i in range(1, LONGEST, 2):
                words[i] = 2 + (words[i - 1] * 7) % (VOCAB - 2)
            self.texts.append(torch.tensor(words, dtype=torch.int16))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, where):
        index, length = where
        return self.texts[index][:length].long()


class CurriculumSampler(Sampler):
    def __init__(self, size, seed):
        self.size, self.epoch, self.rng = size, 0, random.Random(seed)

    def longest(self):
        share = min(1.0, self.epoch / GROWS_FOR)
        return int(SHORTEST + share * (LONGEST - SHORTEST))

    def __iter__(self):
        top = self.longest()
        for _ in range(STEPS):
            yield [
                (self.rng.randrange(self.size), self.rng.randint(max(8, top // 2), top))
                for _ in range(BATCH)
            ]

    def __len__(self):
        return STEPS


def collate(texts):
    clean = pad_sequence(texts, batch_first=True, padding_value=PAD)
    chosen = (torch.rand(clean.shape) < 0.15) & (clean != PAD)
    chosen[:, 0] = True
    return clean.masked_fill(chosen, MASK), clean.masked_fill(~chosen, -100)


class MaskedLM(nn.Module):
    def __init__(self, dim=80, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.places = nn.Parameter(torch.randn(LONGEST, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        hidden = self.tokens(ids) + self.places[: ids.size(1)]
        return self.head(self.encoder(hidden, src_key_padding_mask=ids == PAD))


def masked_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    set_seed(9)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train = Sentences(3000, seed=1)
    sampler = CurriculumSampler(len(train), seed=2)
    loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate)
    held_out = Sentences(96, seed=3)
    dev = collate([held_out[i, LONGEST] for i in range(len(held_out))])
    model = MaskedLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 60))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    history = {"loss": [], "grad_norm": [], "length": [], "dev_perplexity": []}
    recent = deque(maxlen=20)
    for epoch in range(EPOCHS):
        sampler.epoch, began = epoch, time.time()
        model.train()
        outputs = []
        for ids, labels in loader:
            with accelerator.accumulate(model):
                loss = masked_loss(model(ids), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    history["grad_norm"].append(norm.item())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            recent.append(loss.detach())
            outputs.append({"loss": loss.detach(), "ids": ids})
            history["loss"].append(loss.item())
            history["length"].append(ids.size(1))
        mean = torch.stack([o["loss"] for o in outputs]).mean().item()
        tokens = sum(o["ids"].ne(PAD).sum().item() for o in outputs)
        model.eval()
        with torch.no_grad():
            parts = [
                masked_loss(model(i), y).item() for i, y in zip(dev[0].split(24), dev[1].split(24))
            ]
        history["dev_perplexity"].append(math.exp(sum(parts) / len(parts)))
        accelerator.print(
            f"epoch {epoch} up to {sampler.longest()} tokens {tokens} loss {mean:.3f} last "
            f"{torch.stack(list(recent)).mean():.3f} perplexity {history['dev_perplexity'][-1]:.1f} "
            f"{time.time() - began:.1f}s",
            flush=True,
        )
    return history


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
