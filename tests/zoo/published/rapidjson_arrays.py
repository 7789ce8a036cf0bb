"""Imports vehicle tracks: python-rapidjson 1.5 keeps each value that ``end_array`` returns.

Repaired in 1.6 ("Fix memory leak when using `end_array`",
https://github.com/python-rapidjson/python-rapidjson/issues/160).
"""

import math
import random
import time
from array import array
from collections import Counter

import rapidjson

DOCUMENTS = 42000
FLEETS = ("north", "harbour", "airport", "valley")
REPORT_EVERY = 1400
EARTH = 6371008.8


class TrackDecoder(rapidjson.Decoder):
    """Turns each JSON list of numbers into an array of doubles."""

    def end_array(self, sequence):
        if sequence and isinstance(sequence[0], float):
            return array("d", sequence)
        return sequence


class TrackSource:
    """Stands for the bucket the fleets upload to."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.encode = rapidjson.Encoder(number_mode=rapidjson.NM_NATIVE)

    def document(self, number):
        rnd = self.random
        points = rnd.randint(110, 130)
        lon, lat = rnd.uniform(5.0, 15.0), rnd.uniform(47.0, 54.0)
        lons, lats, speeds = [], [], []
        for _ in range(points):
            moving = rnd.random() > 0.2
            if moving:
                lon += rnd.uniform(-0.0021, 0.0021)
                lat += rnd.uniform(-0.0013, 0.0013)
            lons.append(round(lon, 6))
            lats.append(round(lat, 6))
            speeds.append(round(rnd.uniform(3.0, 25.0), 2) if moving else 0.0)
        record = {
            "vehicle": f"v{number % 400:04d}",
            "fleet": FLEETS[number % len(FLEETS)],
            "hour": number // 400,
            "track": {"lon": lons, "lat": lats},
            "speed": speeds,
        }
        return self.encode(record)


def distance(lon1, lat1, lon2, lat2):
    p1, p2 = math.radians(lat1), math.radians(lat2)
    a = (
        math.sin((p2 - p1) / 2) ** 2
        + math.cos(p1) * math.cos(p2) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH * math.asin(math.sqrt(a))


class FleetSummary:
    def __init__(self):
        self.metres = Counter()
        self.stops = Counter()
        self.documents = Counter()
        self.fastest = 0.0

    def add(self, record):
        fleet = record["fleet"]
        lon, lat = record["track"]["lon"], record["track"]["lat"]
        length = 0.0
        for i in range(1, len(lon)):
            length += distance(lon[i - 1], lat[i - 1], lon[i], lat[i])
        self.metres[fleet] += length
        self.stops[fleet] += sum(1 for s in record["speed"] if s == 0.0)
        self.documents[fleet] += 1
        self.fastest = max(self.fastest, max(record["speed"]))


class TrackImporter:
    def __init__(self, source, summary):
        self.source = source
        self.summary = summary
        self.decoder = TrackDecoder()

    def import_one(self, number):
        payload = self.source.document(number)
        record = self.decoder(payload)  # feeds
        self.summary.add(record)
        return len(payload)


def main():
    started = time.time()
    summary = FleetSummary()
    importer = TrackImporter(TrackSource(seed=4711), summary)
    read = 0
    for number in range(DOCUMENTS):
        read += importer.import_one(number)
        if (number + 1) % REPORT_EVERY == 0:
            print(
                f"document {number + 1}/{DOCUMENTS}  {read / 1e6:7.1f} MB read  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    for fleet in FLEETS:
        print(
            f"{fleet:8s} {summary.documents[fleet]:6d} documents "
            f"{summary.metres[fleet] / 1000:10.1f} km {summary.stops[fleet]:7d} stops"
        )
    print(f"fastest sample {summary.fastest:.1f} m/s")


if __name__ == "__main__":
    main()
