"""Web sessions with a lifetime: the store grows until the first ones expire, then it is level."""

import random
import time
from collections import OrderedDict


class SessionStore:
    def __init__(self, lifetime):
        self.lifetime = lifetime
        self.sessions = OrderedDict()

    def create(self, user):
        key = f"{user}-{random.getrandbits(64):x}"
        self.sessions[key] = {
            "user": user,
            "born": time.monotonic(),
            "basket": bytearray(16 * 1024),
        }
        return key

    def expire(self):
        limit = time.monotonic() - self.lifetime
        while self.sessions:
            key = next(iter(self.sessions))
            if self.sessions[key]["born"] > limit:
                break
            del self.sessions[key]


def main():
    random.seed(0)
    store = SessionStore(lifetime=7)
    for tick in range(1600):
        for _ in range(3):
            key = store.create(f"user{random.randrange(1000)}")
            store.sessions[key]["basket"][0] = tick % 256
        store.expire()
        time.sleep(0.0095)
        if tick % 200 == 0:
            print("tick", tick, "sessions", len(store.sessions))


if __name__ == "__main__":
    main()
