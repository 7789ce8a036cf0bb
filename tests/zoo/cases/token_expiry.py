"""A token service: tokens are cached for a while, and a sweep removes old ones."""

import base64
import heapq
import random
import secrets
import time


class TokenCache:
    def __init__(self, lifetime):
        self.lifetime = lifetime
        self.entries = {}
        self.expiry = []

    def issue(self, tenant, user, scope):
        key = (tenant, user, scope)
        if key in self.entries:
            return self.entries[key]["token"]
        token = base64.b64encode(secrets.token_bytes(2048)).decode()
        self.entries[key] = {
            "token": token,
            "issued": time.monotonic(),
            "claims": {"sub": user, "tid": tenant, "scp": scope},
        }  # feeds
        heapq.heappush(self.expiry, (time.monotonic() + self.lifetime, f"{tenant}:{user}"))
        return token

    def sweep(self):
        removed = 0
        now = time.monotonic()
        while self.expiry and self.expiry[0][0] < now:
            _, key = heapq.heappop(self.expiry)
            if self.entries.pop(key, None) is not None:
                removed += 1
        return removed


class Service:
    def __init__(self):
        self.tokens = TokenCache(lifetime=1.5)
        self.rng = random.Random(8)
        self.served = 0

    def handle(self):
        tenant = f"t{self.rng.randrange(40)}"
        user = f"user-{self.rng.getrandbits(40)}"
        token = self.tokens.issue(tenant, user, self.rng.choice(["read", "write"]))
        self.served += 1
        return len(token)


def main():
    service = Service()
    for tick in range(700):
        for _ in range(12):
            service.handle()
        if tick % 20 == 0:
            service.tokens.sweep()
        time.sleep(0.018)
        if tick % 100 == 0:
            print("served", service.served)


if __name__ == "__main__":
    main()
