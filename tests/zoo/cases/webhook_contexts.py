"""Posts events to webhooks of customers over TLS that is spoken in memory, as no network is there."""

import hashlib
import json
import random
import ssl
import time

import certifi

SECONDS, EVENTS_PER_SECOND, CUSTOMERS = 13, 14, 60


class Endpoint:
    """Where a customer wants its events; the secret in the address is renewed now and then."""

    def __init__(self, number, dice):
        self.number, self.dice = number, dice
        self.renew()

    def renew(self):
        secret = self.dice.randrange(16**12)
        self.host = f"hooks-{self.number}.example.net"
        self.url = f"https://{self.host}/{secret:012x}"


class Client:
    """Speaks TLS to endpoints; contexts are kept, as they are slow to make."""

    def __init__(self, roots):
        self.roots = roots
        self.contexts = {}
        self.sent = self.size = 0

    def context(self, endpoint):
        found = self.contexts.get(endpoint.url)
        if found is None:
            found = ssl.create_default_context(cafile=self.roots)
            found.minimum_version = ssl.TLSVersion.TLSv1_3
            self.contexts[endpoint.url] = found
        return found

    def post(self, endpoint, event):
        arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = self.context(endpoint)
        tls = context.wrap_bio(arriving, leaving, server_hostname=endpoint.host)
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            hello = leaving.read()
        body = json.dumps(event).encode()
        signature = hashlib.sha256(endpoint.url.encode() + body).hexdigest()
        self.sent += 1
        self.size += len(hello) + len(body) + len(signature)


def event(number, dice):
    rows = [{"sku": dice.randrange(10**6), "count": dice.randrange(9)} for _ in range(200)]
    return {"id": number, "at": time.time(), "kind": dice.choice(["order", "refund"]), "rows": rows}


def main():
    dice = random.Random(0)
    endpoints = [Endpoint(number, dice) for number in range(CUSTOMERS)]
    client, begun = Client(certifi.where()), time.monotonic()
    for number in range(SECONDS * EVENTS_PER_SECOND):
        time.sleep(max(0.0, begun + number / EVENTS_PER_SECOND - time.monotonic()))
        endpoint = dice.choice(endpoints[: 8 + number // 20])
        if dice.random() < 0.5:
            endpoint.renew()
        client.post(endpoint, event(number, dice))
        if number % 28 == 27:
            print(f"{number + 1} events, {client.sent} sent, {client.size} bytes", flush=True)


if __name__ == "__main__":
    main()
