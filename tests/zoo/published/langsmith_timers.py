"""A question-answering service, traced locally, that keeps each answer's key for an hour."""

import asyncio
import os
import random

os.environ["LANGSMITH_TRACING"] = "false"

import langsmith
from langsmith import traceable, tracing_context

ROUNDS, AT_ONCE, PASSAGES, LENGTH = 800, 4, 24, 1500


class Recent:
    """The keys that were answered within the last hour."""

    def __init__(self, seconds=3600):
        self.seconds, self.keys = seconds, set()

    def add(self, key):
        self.keys.add(key)
        asyncio.get_running_loop().call_later(self.seconds, self.keys.discard, key)  # feeds


@traceable(run_type="retriever")
async def retrieve(question, recent, rng):
    await asyncio.sleep(0)
    recent.add(question)  # feeds
    return ["".join(rng.choices("abcdefgh ", k=LENGTH)) for _ in range(PASSAGES)]


@traceable(run_type="chain")
async def answer(question, recent, rng):
    passages = await retrieve(question, recent, rng)
    return max(passages, key=lambda passage: passage.count(question[-1]))[:200]


async def serve():
    rng, recent, size = random.Random(0), Recent(), 0
    client = langsmith.Client(
        api_url="http://localhost:9", api_key="none", auto_batch_tracing=False
    )
    with tracing_context(enabled="local", client=client):
        for number in range(1, ROUNDS + 1):
            asked = [f"question {number}-{i}" for i in range(AT_ONCE)]
            given = await asyncio.gather(*(answer(question, recent, rng) for question in asked))
            size += sum(map(len, given))
            if number % 100 == 0:
                print(f"round {number}: {size} characters", flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
