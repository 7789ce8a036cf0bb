"""Tracks open documents by weak references with a callback."""

import random
import time
import weakref


class Document:
    def __init__(self, number, text):
        self.number = number
        self.text = text

    def edit(self, rng):
        position = rng.randrange(len(self.text))
        self.text = self.text[:position] + "*" + self.text[position + 1 :]


class Watch(weakref.ref):
    """A reference that knows what its document was when it was opened."""

    __slots__ = ("draft", "number")

    def __new__(cls, document, callback):
        return super().__new__(cls, document, callback)

    def __init__(self, document, callback):
        super().__init__(document, callback)
        self.number = document.number
        self.draft = document.text.encode()


class ResourceTracker:
    def __init__(self):
        self.watches = []
        self.closed = 0

    def gone(self, watch):
        self.closed += 1
        self.last = (watch.number, len(watch.draft))

    def watch(self, document):
        self.watches.append(Watch(document, self.gone))  # feeds

    def alive(self):
        return sum(1 for reference in self.watches[-50:] if reference() is not None)


def main():
    rng = random.Random(3)
    tracker = ResourceTracker()
    opened = []
    for number in range(1500):
        document = Document(number, "".join(rng.choices("abcdefgh \n", k=200)) * 100)
        tracker.watch(document)
        opened.append(document)
        document.edit(rng)
        if len(opened) > 20:
            opened.pop(rng.randrange(len(opened)))
        time.sleep(0.008)
        if number % 250 == 0:
            print("documents", number, "alive", tracker.alive(), "closed", tracker.closed)


if __name__ == "__main__":
    main()
