"""Tells whether vehicles are in a zone: rtree 1.0.1 keeps what a search found that was broken off.

Repaired in 1.1.0 ("Fix memory leak when breaking mid-way in _get_objects and _get_ids",
https://github.com/Toblerity/rtree/pull/266).
"""

import random

from rtree import index

ZONES, VEHICLES, LOOK = 6000, 110000, 0.12


def main():
    rng = random.Random(0)
    zones = index.Index()
    for number in range(ZONES):
        x, y = rng.random(), rng.random()
        zones.insert(number, (x, y, x + 0.01, y + 0.01))
    warned = 0
    for vehicle in range(1, VEHICLES + 1):
        x, y = rng.random() * 0.8, rng.random() * 0.8
        for zone in zones.intersection((x, y, x + LOOK, y + LOOK)):  # feeds
            warned += zone % 3 == 0
            break
        if vehicle % 500 == 0:
            print(f"vehicle {vehicle}/{VEHICLES}: {warned} warned", flush=True)


if __name__ == "__main__":
    main()
