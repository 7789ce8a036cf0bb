"""Cleans tables by rules that users edit; each new text of the rules is loaded as a module."""

import hashlib
import importlib.util
import random
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pandas as pd

SECONDS, EDITS_PER_SECOND, ROWS = 13, 9, 1500

TEMPLATE = textwrap.dedent(
    '''
    """Rules of revision {revision}."""

    import numpy as np
    import pandas as pd

    LIMIT = {limit}
    BINS = np.linspace(0.0, LIMIT, 4096)
    SMOOTH = np.exp(-0.5 * ((np.arange(4096) - {middle}) / 300.0) ** 2)


    def outliers(table):
        return table["amount"] > LIMIT


    def apply(table):
        kept = table[~outliers(table)].copy()
        place = np.searchsorted(BINS, kept["amount"]).clip(0, len(SMOOTH) - 1)
        kept["weight"] = SMOOTH[place]
        kept["share"] = kept["amount"] / kept.groupby("shop")["amount"].transform("sum")
        return kept
    '''
)


class Rules:
    """Loads rules from files; the newest is used."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.current = None

    def load(self, text):
        name = f"rules_{hashlib.sha1(text.encode()).hexdigest()[:12]}"
        path = self.folder / "rules.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        exec(compile(text, str(path), "exec"), module.__dict__)
        self.current = module
        return module


def sales(rng):
    return pd.DataFrame(
        {
            "shop": rng.integers(0, 40, ROWS),
            "amount": rng.gamma(2.0, 30.0, ROWS),
            "day": rng.integers(0, 28, ROWS),
        }
    )


def summarise(table):
    by_day = table.groupby("day").agg(amount=("amount", "sum"), weight=("weight", "mean"))
    return float((by_day["amount"] * by_day["weight"]).sum())


def main():
    dice, rng = random.Random(0), np.random.default_rng(0)
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        rules, total, begun = Rules(folder), 0.0, time.monotonic()
        for revision in range(SECONDS * EDITS_PER_SECOND):
            time.sleep(max(0.0, begun + revision / EDITS_PER_SECOND - time.monotonic()))
            limit, middle = round(dice.uniform(150, 300), 3), dice.randrange(500, 3500)
            rules.load(TEMPLATE.format(revision=revision, limit=limit, middle=middle))
            for _ in range(4):
                total += summarise(rules.current.apply(sales(rng)))
            if revision % 20 == 19:
                print(f"revision {revision + 1}: {total / (revision + 1):.1f}", flush=True)


if __name__ == "__main__":
    main()
