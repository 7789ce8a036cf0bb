"""A message router that keeps parts undecoded: msgspec 0.18.6 keeps each part that is copied.

Repaired in 0.19.0 ("Fix memory leak in Raw.copy()", https://github.com/jcrist/msgspec/pull/709).
"""

import random
import time
from collections import deque

import msgspec

PER_SECOND, SECONDS, WAITING = 3000, 10, 100


class Envelope(msgspec.Struct):
    topic: str
    payload: msgspec.Raw


def message(rng, number):
    """Return a message as it comes from the wire."""
    values = [rng.random() for _ in range(60)]
    content = {"topic": f"room/{number % 9}", "payload": {"number": number, "values": values}}
    return msgspec.json.encode(content)


def main():
    rng = random.Random(0)
    decoder = msgspec.json.Decoder(Envelope)
    outgoing, sent = deque(), 0
    begun = time.monotonic()
    for number in range(1, PER_SECOND * SECONDS + 1):
        if number % 100 == 0:
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        envelope = decoder.decode(message(rng, number))
        outgoing.append((envelope.topic, envelope.payload.copy()))  # feeds
        if len(outgoing) > WAITING:
            _, payload = outgoing.popleft()
            sent += len(bytes(payload))
        if number % 6000 == 0:
            print(f"{number} messages, {sent} bytes sent", flush=True)


if __name__ == "__main__":
    main()
