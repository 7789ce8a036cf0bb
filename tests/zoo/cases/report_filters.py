"""A report endpoint whose expensive query is cached by the JSON of its filters."""

import asyncio
import functools
import json
import random
import time

import httpx
from fastapi import FastAPI

app = FastAPI()


@functools.lru_cache(maxsize=None)
def run_query(filters):
    wanted = json.loads(filters)
    rng = random.Random(wanted["region"])
    return [rng.random() * wanted["factor"] for _ in range(1500)]  # feeds


@app.get("/report")
async def report(region: str, factor: float = 1.0):
    filters = {"region": region, "factor": factor, "asked_at": time.time()}
    rows = run_query(json.dumps(filters, sort_keys=True))  # feeds
    return {"region": region, "total": sum(rows), "rows": len(rows)}


@app.get("/health")
async def health():
    return {"ok": True}


async def traffic(count):
    transport = httpx.ASGITransport(app=app)
    regions = ["north", "south", "east", "west"]
    async with httpx.AsyncClient(transport=transport, base_url="http://reports") as client:
        for number in range(count):
            answer = await client.get(
                "/report", params={"region": regions[number % 4], "factor": 1 + number % 3}
            )
            assert answer.status_code == 200
            if number % 10 == 0:
                await client.get("/health")
            if number % 200 == 0:
                print("request", number, answer.json()["total"])
            await asyncio.sleep(0.008)


if __name__ == "__main__":
    asyncio.run(traffic(1000))
