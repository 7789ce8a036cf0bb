"""Serves embeddings of queries over HTTP with FastAPI; identical queries are answered at once."""

import asyncio
import random
from functools import lru_cache
from typing import Literal

import httpx
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

PER_SECOND, SECONDS = 40, 13
WORDS = ["red", "blue", "oak", "pine", "chair", "table", "lamp", "desk", "old", "new", "small"]


class Query(BaseModel):
    model_config = ConfigDict(frozen=True)
    text: str
    locale: Literal["en", "de", "fr"] = "en"
    request_id: str


class Answer(BaseModel):
    nearest: list[int]
    score: float


class Embedder:
    """Hashes n-grams of letters into a table, as fastText does, one row for each piece."""

    def __init__(self, rows=20000, width=96, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.standard_normal((rows, width), dtype=np.float32)
        self.mix = rng.standard_normal((width, width), dtype=np.float32) / width**0.5

    def pieces(self, text, locale):
        padded = f"<{locale}:{text}>"
        return [
            hash_of(padded[at : at + size]) % len(self.table)
            for size in (3, 4, 5)
            for at in range(len(padded) - size + 1)
        ]

    def encode(self, text, locale):
        tokens = self.table[self.pieces(text, locale)]
        weights = tokens @ self.mix @ tokens.T / 10
        weights = np.exp(weights - weights.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True) @ tokens


def hash_of(piece):
    value = 2166136261
    for letter in piece.encode():
        value = (value ^ letter) * 16777619 % (1 << 32)
    return value


embedder = Embedder()
catalogue = np.random.default_rng(1).standard_normal((5000, 96), dtype=np.float32)
app = FastAPI()


@lru_cache(maxsize=None)
def embed(query: Query) -> np.ndarray:
    return embedder.encode(query.text, query.locale)


@app.post("/search")
async def search(query: Query) -> Answer:
    tokens = embed(query)
    scores = (catalogue @ tokens.T).max(1)
    best = np.argpartition(scores, -5)[-5:]
    return Answer(nearest=best.tolist(), score=float(scores[best].mean()))


@app.get("/health")
async def health():
    return {"ok": True}


async def main():
    dice = random.Random(0)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://search") as client:
        loop = asyncio.get_running_loop()
        begun, total = loop.time(), 0.0
        for number in range(PER_SECOND * SECONDS):
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
            text = " ".join(dice.choices(WORDS, k=6))
            body = {
                "text": text,
                "locale": dice.choice(["en", "de", "fr"]),
                "request_id": f"r{number}",
            }
            reply = await client.post("/search", json=body)
            total += reply.json()["score"]
            if number % 100 == 99:
                up = (await client.get("/health")).json()["ok"]
                print(
                    f"{number + 1} answered, mean score {total / (number + 1):.3f}, {up}",
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(main())
