"""A chat relay on asyncio streams: rooms keep transcripts, and repeated messages are dropped."""

import asyncio
import json
import random
import uuid


class Room:
    def __init__(self, name):
        self.name = name
        self.transcript = []

    def post(self, sender, text):
        self.transcript.append(f"{sender}: {text}")  # feeds: transcript

    def last(self, count=5):
        return self.transcript[-count:]


class Relay:
    def __init__(self):
        self.rooms = {name: Room(name) for name in ("lobby", "ops", "random")}
        self.seen = set()
        self.relayed = 0

    def on_message(self, message):
        if message["id"] in self.seen:
            return False
        self.seen.add(message["id"])  # feeds: seen
        self.rooms[message["room"]].post(message["from"], message["text"])
        self.relayed += 1
        return True

    async def serve(self, reader, writer):
        while line := await reader.readline():
            fresh = self.on_message(json.loads(line))
            writer.write(b"1\n" if fresh else b"0\n")
            await writer.drain()
        writer.close()


async def chatter(port, name, rng, count):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    rooms = ["lobby", "ops", "random"]
    last = None
    for _ in range(count):
        if last is None or rng.random() > 0.05:
            last = {
                "id": str(uuid.UUID(int=rng.getrandbits(128))),
                "from": name,
                "room": rng.choice(rooms),
                "text": rng.randbytes(750).hex(),
            }
        writer.write(json.dumps(last).encode() + b"\n")
        await reader.readline()
        await asyncio.sleep(0.004)
    writer.close()


async def main():
    relay = Relay()
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    people = [
        asyncio.create_task(chatter(port, f"user{i}", random.Random(i), 2200)) for i in range(6)
    ]
    while not all(person.done() for person in people):
        await asyncio.sleep(2)
        print("relayed", relay.relayed, "last", relay.rooms["lobby"].last(1)[0][:30], flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
