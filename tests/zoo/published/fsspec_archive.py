"""Indexes uploaded zip archives: fsspec 2022.3.0 keeps the file system of each archive it opened.

Repaired in 2022.5.0 (https://github.com/fsspec/filesystem_spec/issues/965).
"""

import json
import random
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import fsspec

UPLOADS = 320
RECORDS = 160
REPORT_EVERY = 16
SAMPLE = 25


class Station:
    """Builds uploads as the scanner stations do."""

    def __init__(self, inbox: Path, seed: int):
        self.inbox = inbox
        self.random = random.Random(seed)

    def upload(self, number: int) -> Path:
        path = self.inbox / f"scan-{number:05d}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for index in range(RECORDS):
                record = {
                    "parcel": f"P{number:05d}{index:04d}",
                    "weight": round(self.random.uniform(0.1, 30.0), 2),
                    "zone": self.random.choice("ABCDEF"),
                    "express": self.random.random() < 0.2,
                }
                name = f"day{index % 7}/belt{index % 5}/{record['parcel']}.json"
                archive.writestr(name, json.dumps(record))
        return path


class Index:
    def __init__(self):
        self.uploads = 0
        self.records = 0
        self.bytes = 0
        self.zones = Counter()
        self.belts = Counter()
        self.weight = 0.0
        self.sampled = 0

    def add_listing(self, listing: dict) -> None:
        for name, details in listing.items():
            self.records += 1
            self.bytes += details["size"]
            self.belts[name.split("/")[1]] += 1

    def add_record(self, record: dict) -> None:
        self.sampled += 1
        self.zones[record["zone"]] += 1
        self.weight += record["weight"]

    def mean_weight(self) -> float:
        return self.weight / max(self.sampled, 1)


class Indexer:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.index = Index()

    def open_upload(self, path: Path):
        return fsspec.filesystem("zip", fo=str(path))  # feeds

    def process(self, path: Path) -> None:
        archive = self.open_upload(path)
        listing = archive.find("", detail=True)
        self.index.add_listing(listing)
        for name in self.random.sample(sorted(listing), SAMPLE):
            self.index.add_record(json.loads(archive.cat_file(name)))
        self.index.uploads += 1
        path.unlink()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="inbox-") as folder:
        station = Station(Path(folder), seed=17)
        indexer = Indexer(seed=18)
        for number in range(1, UPLOADS + 1):
            indexer.process(station.upload(number))
            time.sleep(0.05)  # the stations upload now and then
            if number % REPORT_EVERY == 0:
                index = indexer.index
                print(
                    f"upload {number}/{UPLOADS}: {index.records} records, "
                    f"{index.bytes >> 10} KiB, mean weight {index.mean_weight():.2f} kg",
                    flush=True,
                )
    print("done:", indexer.index.uploads, "uploads,", dict(sorted(indexer.index.zones.items())))


if __name__ == "__main__":
    main()
