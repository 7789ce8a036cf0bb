"""Cleans scraped snippets into training text: selectolax 0.4.4 keeps a document for each fragment.

The document that the fragment was parsed in was not destroyed. Repaired in 0.4.5 ("Fix memory leak
in fragment parser", https://github.com/rushter/selectolax/commit/9cb78f71); 0.4.6 has a wheel.
"""

import random
import time
from collections import Counter

from selectolax.lexbor import LexborHTMLParser

SNIPPETS, PER_SECOND = 480, 40
REPORT_EVERY = 80
TEXT = (
    "the model learns a map from images to words and each batch takes its share of memory while "
    "gradients flow back through layers that hold what they saw"
)
WORDS = TEXT.split()


class Crawl:
    """Stands for the shards of a crawl: pieces of pages as a search index keeps them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def sentence(self):
        words = self.random.choices(WORDS, k=self.random.randint(6, 16))
        marked = self.random.randrange(len(words))
        words[marked] = f"<b>{words[marked]}</b>"
        return " ".join(words)

    def snippet(self):
        paragraphs = "".join(
            f"<p>{self.sentence()}. <a href='/page/{self.random.randrange(9999)}'>more</a></p>"
            for _ in range(self.random.randint(3, 6))
        )
        return f"<div class=result><script>track(1)</script>{paragraphs}</div>"


def clean(snippet):
    """Return the words of a snippet, without links and scripts."""
    parser = LexborHTMLParser(snippet, is_fragment=True)  # feeds
    for node in parser.css("script, a"):
        node.decompose()
    return [word.strip(".") for word in parser.root.text(separator=" ").split()]


def main():
    crawl, vocabulary = Crawl(seed=0), Counter()
    begun = time.monotonic()
    for number in range(1, SNIPPETS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        vocabulary.update(clean(crawl.snippet()))
        if number % REPORT_EVERY == 0:
            total = sum(vocabulary.values())
            print(f"{number} snippets, {total} words, {len(vocabulary)} different", flush=True)
    print(vocabulary.most_common(5))


if __name__ == "__main__":
    main()
