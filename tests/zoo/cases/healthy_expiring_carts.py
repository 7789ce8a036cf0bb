"""Serves baskets of a shop with FastAPI; what isn't touched for some seconds is dropped."""

import asyncio
import random

import httpx
import numpy as np
from cachetools import TTLCache
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

PER_SECOND, SECONDS, LIFETIME, ARTICLES = 45, 15, 4.0, 3000


class Line(BaseModel):
    article: int
    count: int = 1


class Basket:
    """What a visitor wants, and what to recommend with it."""

    def __init__(self, visitor):
        self.visitor = visitor
        self.lines = {}
        self.scores = np.zeros(ARTICLES, np.float32)

    def add(self, line, factors):
        self.lines[line.article] = self.lines.get(line.article, 0) + line.count
        self.scores += line.count * (factors @ factors[line.article])

    def recommended(self, count=4):
        hidden = self.scores.copy()
        hidden[list(self.lines)] = -np.inf
        return np.argpartition(hidden, -count)[-count:].tolist()


class Shop:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.factors = rng.standard_normal((ARTICLES, 48), dtype=np.float32)
        self.baskets = TTLCache(maxsize=5000, ttl=LIFETIME)
        self.sold = 0

    def basket(self, visitor):
        found = self.baskets.get(visitor) or Basket(visitor)
        self.baskets[visitor] = found  # which renews its time
        return found


app = FastAPI()
shop = Shop(0)


@app.post("/baskets/{visitor}")
async def add(visitor: str, line: Line):
    basket = shop.basket(visitor)
    basket.add(line, shop.factors)
    return {"lines": len(basket.lines), "also": basket.recommended()}


@app.post("/baskets/{visitor}/checkout")
async def checkout(visitor: str):
    basket = shop.baskets.pop(visitor, None)
    if basket is None:
        raise HTTPException(404, "no such basket")
    shop.sold += sum(basket.lines.values())
    return {"sold": len(basket.lines)}


async def main():
    dice = random.Random(0)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        loop = asyncio.get_running_loop()
        begun, visitors, gone = loop.time(), [], 0
        for number in range(PER_SECOND * SECONDS):
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
            if not visitors or dice.random() < 0.5:
                visitors.append(f"v{number}")
            visitor = dice.choice(visitors[-20:])
            if dice.random() < 0.05:
                reply = await client.post(f"/baskets/{visitor}/checkout")
                gone += reply.status_code == 404
            else:
                line = {"article": dice.randrange(ARTICLES), "count": dice.randint(1, 3)}
                (await client.post(f"/baskets/{visitor}", json=line)).raise_for_status()
            if number % 90 == 89:
                print(f"{number + 1}: {shop.sold} sold, {gone} too late", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
