"""Product pages from two bounded caches, of which one is full early and one late."""

import random
import time


class Bounded:
    """Drops the oldest entry."""

    def __init__(self, limit):
        self.limit = limit
        self.data = {}

    def get_or_make(self, key, make):
        if key in self.data:
            return self.data[key]
        if len(self.data) >= self.limit:
            del self.data[next(iter(self.data))]
        value = self.data[key] = make(key)
        return value


class Renderer:
    def __init__(self):
        self.fragments = Bounded(400)
        self.pages = Bounded(1500)

    def fragment(self, product):
        return f"<li>{product}</li>" * 1200

    def page(self, key):
        product, language = key
        body = self.fragments.get_or_make(product % 1000, self.fragment)
        return f"<html lang={language}>" + body[:16_000] + "</html>"


def main():
    rng = random.Random(0)
    renderer = Renderer()
    sent = 0
    for request in range(2400):
        key = (rng.randrange(6000), rng.choice(["en", "de", "fr"]))
        sent += len(renderer.pages.get_or_make(key, renderer.page))
        time.sleep(0.006)
        if request % 300 == 0:
            print(
                "request",
                request,
                "fragments",
                len(renderer.fragments.data),
                "pages",
                len(renderer.pages.data),
                "sent",
                sent,
            )


if __name__ == "__main__":
    main()
