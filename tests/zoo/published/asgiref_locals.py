"""A web service with the user of a request in a local: asgiref 3.1.0 keeps it for each task.

Repaired in 3.1.1 ("Local now cleans up storage of old threads and tasks to prevent a memory leak").
"""

import asyncio
import random

from asgiref.local import Local

PER_SECOND, SECONDS = 60, 15
current = Local()


def load_profile(rng, user):
    """Return what the database has of a user."""
    return {"name": f"user {user}", "features": rng.randbytes(30000)}


async def handle(rng, number):
    user = rng.randrange(1000)
    current.profile = load_profile(rng, user)  # feeds
    await asyncio.sleep(0.01)
    return current.profile["name"], sum(current.profile["features"][:100])


async def serve():
    rng = random.Random(0)
    loop = asyncio.get_running_loop()
    begun, running = loop.time(), set()
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        task = asyncio.create_task(handle(rng, number))
        running.add(task)
        task.add_done_callback(running.discard)
        if number % 180 == 179:
            print(f"{number + 1} requests, {len(running)} running", flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
