"""Runs a sloppy third-party parser in recycled pool workers (maxtasksperchild)."""

import multiprocessing as mp
import os
import random
import time

TASKS = 900

# state the vendored parser keeps for ever; the reason why workers are recycled
_parser_symbols = {}


def vendored_parse(text, doc):
    tokens = text.split()
    for i, tok in enumerate(tokens):
        _parser_symbols[(doc, i)] = tok
    return len(set(tokens))


def make_text(doc, n=5000):
    rng = random.Random(doc)
    return " ".join(f"w{rng.randrange(900)}" for _ in range(n))


def parse_document(doc):
    text = make_text(doc)
    distinct = vendored_parse(text, doc)
    time.sleep(0.02)
    return doc, distinct, os.getpid()


class Catalogue:
    """Running totals only; the documents themselves are not kept."""

    def __init__(self):
        self.docs = 0
        self.distinct = 0
        self.workers = set()

    def add(self, result):
        _, distinct, pid = result
        self.docs += 1
        self.distinct += distinct
        self.workers.add(pid)


def main():
    ctx = mp.get_context("fork")
    catalogue = Catalogue()
    start = time.time()
    with ctx.Pool(2, maxtasksperchild=25) as pool:
        for result in pool.imap_unordered(parse_document, range(TASKS)):
            catalogue.add(result)
            if catalogue.docs % 100 == 0:
                print(
                    f"{catalogue.docs} docs, mean distinct {catalogue.distinct / catalogue.docs:.1f}, "
                    f"{len(catalogue.workers)} workers used, {time.time() - start:.1f}s",
                    flush=True,
                )
        pool.close()
        pool.join()


if __name__ == "__main__":
    main()
