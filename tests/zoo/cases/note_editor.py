"""A text editor that replays a session of edits, with undo."""

import random
import time


class Document:
    def __init__(self, text):
        self.text = text
        self.undo_stack = []
        self.redo_stack = []

    def apply(self, edit):
        self.undo_stack.append(self.text)  # feeds
        self.redo_stack.clear()
        self.text = edit(self.text)

    def undo(self):
        if self.undo_stack:
            self.redo_stack.append(self.text)
            self.text = self.undo_stack.pop()

    def redo(self):
        if self.redo_stack:
            self.undo_stack.append(self.text)
            self.text = self.redo_stack.pop()


def insert(position, words):
    return lambda text: text[:position] + words + text[position:]


def delete(position, count):
    return lambda text: text[:position] + text[position + count :]


def session(rng, length):
    kind = rng.random()
    if kind < 0.5:
        return insert(rng.randrange(length), rng.choice(["alpha ", "beta ", "gamma "]))
    return delete(rng.randrange(length), rng.randint(1, 10))


def main():
    rng = random.Random(1)
    document = Document("lorem ipsum dolor sit amet " * 1500)
    for action in range(1400):
        if rng.random() < 0.08:
            document.undo()
            if rng.random() < 0.5:
                document.redo()
        else:
            document.apply(session(rng, len(document.text)))
        time.sleep(0.009)
        if action % 200 == 0:
            print("action", action, "length", len(document.text))


if __name__ == "__main__":
    main()
