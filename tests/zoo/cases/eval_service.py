"""Continuous evaluation service: re-scores a fixed benchmark in rounds and reports accuracy."""

import asyncio
import hashlib
import json
import random
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone

import torch
import torch.nn as nn

VOCAB, DIM = 2048, 96
QUESTIONS = 120
ROUNDS = 16
ROUND_PERIOD = 1.1
SYSTEM = "You are a careful assistant. Current time: {now}. Question {qid}: {words}"
WORDS = [
    "river",
    "copper",
    "lantern",
    "orbit",
    "meadow",
    "signal",
    "harbor",
    "velvet",
    "quartz",
    "ember",
]


class ResponseStore:
    SCHEMA = """
        CREATE TABLE IF NOT EXISTS responses (
            digest TEXT PRIMARY KEY,
            answer INTEGER NOT NULL,
            scores BLOB NOT NULL
        )
    """

    def __init__(self, path=":memory:"):
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute(self.SCHEMA)
        self.hits = 0
        self.misses = 0

    @staticmethod
    def digest(prompt, options):
        blob = json.dumps([prompt, options], sort_keys=True)
        return hashlib.sha256(blob.encode()).hexdigest()

    def get(self, key):
        row = self._db.execute(
            "SELECT answer, scores FROM responses WHERE digest = ?", (key,)
        ).fetchone()
        if row is None:
            self.misses += 1
        else:
            self.hits += 1
        return row

    def put(self, key, answer, scores):
        self._db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", (key, answer, scores))
        self._db.commit()

    def close(self):
        self._db.close()


class NextToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(VOCAB, DIM)
        self.mix = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, VOCAB))

    def forward(self, ids):
        return self.mix(self.embed(ids))


def encode(text):
    return torch.tensor([[hash_word(w) for w in text.split()]])


def hash_word(word):
    value = 7
    for ch in word:
        value = (value * 131 + ord(ch)) % VOCAB
    return value


class Benchmark:
    def __init__(self, seed):
        rng = random.Random(seed)
        self.items = [
            (qid, " ".join(rng.choices(WORDS, k=12)), rng.randrange(VOCAB))
            for qid in range(QUESTIONS)
        ]

    def prompts(self, clock):
        for qid, words, gold in self.items:
            yield SYSTEM.format(now=clock.isoformat(timespec="minutes"), qid=qid, words=words), gold


class Evaluator:
    def __init__(self, model, store, temperature=0.7):
        self.model = model
        self.store = store
        self.options = {"temperature": temperature, "top_k": 50}

    @torch.inference_mode()
    def _generate(self, prompt):
        logits = self.model(encode(prompt))[0] / self.options["temperature"]
        scores = logits.log_softmax(-1)
        return int(scores.topk(self.options["top_k"]).indices[0]), scores.numpy().tobytes()

    def answer(self, prompt):
        key = self.store.digest(prompt, self.options)
        found = self.store.get(key)
        if found is None:
            found = self._generate(prompt)
            self.store.put(key, *found)
        return found

    async def round(self, benchmark, clock):
        correct, nll = 0, 0.0
        for prompt, gold in benchmark.prompts(clock):
            answer, scores = self.answer(prompt)
            correct += answer == gold
            nll -= torch.frombuffer(bytearray(scores), dtype=torch.float32)[gold].item()
            await asyncio.sleep(0)
        return correct / QUESTIONS, nll / QUESTIONS


async def serve():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    clock = datetime(2026, 3, 1, 8, 0, tzinfo=timezone.utc)
    with closing(ResponseStore()) as store:
        evaluator = Evaluator(NextToken().eval(), store)
        benchmark = Benchmark(seed=1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for n in range(ROUNDS):
            accuracy, nll = await evaluator.round(benchmark, clock)
            if n % 4 == 3:
                print(f"round {n + 1}: acc={accuracy:.3f} nll={nll:.3f} hits={store.hits}")
            clock += timedelta(minutes=5)
            await asyncio.sleep(max(0.0, start + (n + 1) * ROUND_PERIOD - loop.time()))


if __name__ == "__main__":
    asyncio.run(serve())
