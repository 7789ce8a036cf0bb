"""Collects drafts of documents while people type; a draft is stored when its author has paused."""

import asyncio
import hashlib
import random
import zlib

PER_SECOND, SECONDS, AUTHORS, PAUSE = 80, 12, 25, 0.8


class Draft:
    def __init__(self, author, size):
        self.author = author
        self.text = bytearray(random.Random(author).randbytes(size))

    def edit(self, at, piece):
        self.text[at : at + len(piece)] = piece
        return bytes(self.text)


class Debounced:
    """Runs what was asked for last, after a pause of its key; what was asked before is called off."""

    def __init__(self, loop, pause):
        self.loop, self.pause = loop, pause
        self.timers = {}
        self.called_off = 0

    def call(self, key, function, *arguments):
        if (timer := self.timers.get(key)) is not None:
            timer.cancel()
            self.called_off += 1
        self.timers[key] = self.loop.call_later(self.pause, self.fire, key, function, *arguments)

    def fire(self, key, function, *arguments):
        del self.timers[key]
        function(*arguments)


class Archive:
    """The newest text of each author, compressed, and digests of the last hundred."""

    def __init__(self):
        self.stored, self.digests = {}, []

    def store(self, author, text):
        self.stored[author] = zlib.compress(text, 1)
        self.digests = [*self.digests[-99:], hashlib.sha256(text).hexdigest()]


async def main():
    loop, dice = asyncio.get_running_loop(), random.Random(0)
    drafts = [Draft(author, 20_000 + 1000 * author) for author in range(AUTHORS)]
    uploads, archive = Debounced(loop, PAUSE), Archive()
    begun = loop.time()
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        # People type in bursts: some authors at a time.
        author = (number // (PER_SECOND * 2) * 5 + dice.randrange(5)) % AUTHORS
        text = drafts[author].edit(dice.randrange(20_000), dice.randbytes(16))
        uploads.call(author, archive.store, author, text)
        if number % 160 == 159:
            print(
                f"{number + 1} edits, {uploads.called_off} called off, {len(archive.stored)} stored"
            )
    await asyncio.sleep(PAUSE * 1.2)


if __name__ == "__main__":
    asyncio.run(main())
