"""A recommendation server whose sessions end some seconds after their last request."""

import asyncio

import numpy as np

PER_SECOND, SECONDS, TTL, ITEMS, WIDTH = 60, 16, 5.0, 3000, 256


class Sessions:
    def __init__(self, clock):
        self.clock = clock
        self.live = {}

    def touch(self, user):
        """Return what is known of a user in this session."""
        if user not in self.live:
            taste = np.zeros((16, WIDTH), dtype=np.float32)
            self.live[user] = {"taste": taste, "seen": set(), "ends": 0.0}
        session = self.live[user]
        session["ends"] = self.clock() + TTL
        return session

    async def sweep(self):
        while True:
            await asyncio.sleep(0.5)
            now = self.clock()
            for user in [user for user, s in self.live.items() if s["ends"] < now]:
                del self.live[user]


def recommend(items, session, liked):
    row = len(session["seen"]) % len(session["taste"])
    session["taste"][row] = items[liked]
    session["seen"].add(liked)
    scores = items @ session["taste"].mean(0)
    return np.argpartition(scores, -10)[-10:].tolist()


async def serve():
    rng = np.random.default_rng(0)
    items = rng.standard_normal((ITEMS, WIDTH), dtype=np.float32)
    loop = asyncio.get_running_loop()
    sessions = Sessions(loop.time)
    sweeper = asyncio.create_task(sessions.sweep())
    begun = loop.time()
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        user = f"user-{number // 2 + int(rng.integers(0, 20))}"
        recommend(items, sessions.touch(user), int(rng.integers(0, ITEMS)))
        if number % 240 == 239:
            print(f"{number + 1} requests, {len(sessions.live)} sessions", flush=True)
    sweeper.cancel()


if __name__ == "__main__":
    asyncio.run(serve())
