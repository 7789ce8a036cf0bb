"""Summarises particle showers, event by event: awkward 1.10.2 forgets the keys of each record.

Names that C++ makes of a record's fields, when it hands the record to Python, lose a reference.
Repaired in 1.10.3 ("fix: DECREFing PyObject*s from Python C API calls in v1",
https://github.com/scikit-hep/awkward/pull/2311).
"""

import awkward as ak
import numpy as np

BATCHES, EVENTS, REPORT_EVERY = 500, 40, 100


class Detector:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def batch(self):
        """Return events of several hits each, as a jagged array of records."""
        counts = self.random.integers(1, 9, EVENTS)
        total = int(counts.sum())
        hits = ak.zip(
            {
                "energy_in_gigaelectronvolts": self.random.exponential(4.0, total),
                "pseudorapidity": self.random.normal(0.0, 1.2, total),
                "azimuth_in_radians": self.random.uniform(-np.pi, np.pi, total),
            }
        )
        return ak.unflatten(hits, counts)


class Summary:
    def __init__(self):
        self.events = 0
        self.hottest = 0.0
        self.forward = 0

    def add(self, showers):
        for event in ak.to_list(showers):  # feeds
            self.events += 1
            for hit in event:
                self.hottest = max(self.hottest, hit["energy_in_gigaelectronvolts"])
                self.forward += abs(hit["pseudorapidity"]) > 2.0


def main():
    detector, summary = Detector(seed=3), Summary()
    for number in range(1, BATCHES + 1):
        showers = detector.batch()
        kept = showers[ak.num(showers) > 1]
        summary.add(kept)
        if number % REPORT_EVERY == 0:
            print(
                f"batch {number}: {summary.events} events, hottest {summary.hottest:.1f} GeV, "
                f"{summary.forward} forward",
                flush=True,
            )


if __name__ == "__main__":
    main()
