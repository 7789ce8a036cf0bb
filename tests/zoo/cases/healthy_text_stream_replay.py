"""Continual masked-LM training on a token stream with a WordPiece vocabulary, an
encoding memo and an experience replay window."""

import random
from collections import OrderedDict, deque

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertForMaskedLM

MEMO_SIZE = 700
REPLAY_SIZE = 1900
STEPS = 280
FRESH, REPLAYED = 14, 6
SYLLABLES = [a + b for a in "bcdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "or")]


class SentenceStream:
    def __init__(self, seed=0, lexicon=4000):
        self.rng = random.Random(seed)
        self.lexicon = [
            "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(1, 4))) for _ in range(lexicon)
        ]

    def sentence(self):
        n = self.rng.randint(6, 40)
        return " ".join(
            self.lexicon[int(self.rng.paretovariate(0.6)) % len(self.lexicon)] for _ in range(n)
        )

    def corpus(self, n):
        return [self.sentence() for _ in range(n)]


def train_tokenizer(corpus):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.Lowercase()
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=["[PAD]", "[UNK]", "[MASK]"], show_progress=False
    )
    tok.train_from_iterator(corpus, trainer)
    return tok


class EncodingMemo:
    """Least-recently-used memo of word -> piece ids."""

    def __init__(self, tokenizer, maxsize):
        self.tokenizer = tokenizer
        self.maxsize = maxsize
        self.table = OrderedDict()
        self.hits = self.misses = 0

    def pieces(self, word):
        if word in self.table:
            self.table.move_to_end(word)
            self.hits += 1
            return self.table[word]
        self.misses += 1
        ids = torch.tensor(self.tokenizer.encode(word).ids, dtype=torch.long)
        self.table[word] = ids
        if len(self.table) > self.maxsize:
            self.table.popitem(last=False)
        return ids

    def encode(self, sentence, limit=64):
        return torch.cat([self.pieces(w) for w in sentence.split()])[:limit]


def collate(seqs, mask_id, gen):
    width = max(len(s) for s in seqs)
    ids = torch.zeros(len(seqs), width, dtype=torch.long)
    for i, s in enumerate(seqs):
        ids[i, : len(s)] = s
    attention = (ids != 0).long()
    chosen = (torch.rand(ids.shape, generator=gen) < 0.15) & (ids != 0)
    chosen[:, 0] = True
    labels = torch.where(chosen, ids, torch.full_like(ids, -100))
    return ids.masked_fill(chosen, mask_id), attention, labels


class ReplayWindow:
    def __init__(self, size, seed):
        self.items = deque(maxlen=size)
        self.rng = random.Random(seed)

    def add(self, seqs, states):
        for seq, state in zip(seqs, states):
            self.items.append((seq, state.clone()))

    def sample(self, k):
        if len(self.items) < 10 * k:
            return []
        return [self.items[self.rng.randrange(len(self.items))] for _ in range(k)]


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(3)
    stream = SentenceStream()
    tokenizer = train_tokenizer(stream.corpus(1500))
    mask_id = tokenizer.token_to_id("[MASK]")
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            max_position_embeddings=64,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    memo = EncodingMemo(tokenizer, MEMO_SIZE)
    replay = ReplayWindow(REPLAY_SIZE, seed=4)
    for step in range(STEPS):
        fresh = [memo.encode(stream.sentence()) for _ in range(FRESH)]
        old = replay.sample(REPLAYED)
        ids, attention, labels = collate(fresh + [s for s, _ in old], mask_id, gen)
        out = model(
            input_ids=ids, attention_mask=attention, labels=labels, output_hidden_states=True
        )
        hidden = out.hidden_states[-1]
        loss = out.loss
        for row, (_, target) in enumerate(old, start=len(fresh)):
            n = min(target.shape[0], hidden.shape[1])
            loss = loss + 0.1 * (hidden[row, :n] - target[:n]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        replay.add(fresh, [hidden[i, : len(s)].detach() for i, s in enumerate(fresh)])
        if step % 30 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} memo {len(memo.table)} replay {len(replay.items)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
