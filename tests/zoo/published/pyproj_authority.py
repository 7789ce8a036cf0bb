"""Normalises the coordinate systems of layers: pyproj 3.4.0 keeps the candidates of each look-up.

Repaired in 3.4.1 ("Fix CRS.to_authority memory leak", https://github.com/pyproj4/pyproj/pull/1178).
"""

import random
import time
from collections import Counter
from dataclasses import dataclass

from pyproj import CRS, Transformer

LAYERS = 1500
REPORT_EVERY = 50
CODES = (32631, 32632, 32633, 25832, 25833, 27700, 2154, 3035)
OFFICES = ("survey", "forest", "water", "roads", "harbour")


@dataclass
class Layer:
    name: str
    office: str
    wkt: str
    corners: list


@dataclass
class Record:
    name: str
    authority: str
    code: str
    bounds: tuple


class Catalogue:
    """Produces the layers in the form the offices hand them in."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.templates = {}
        for code in CODES:
            wkt = CRS.from_epsg(code).to_wkt("WKT1_GDAL")
            # the offices drop the outer authority entry
            head, _, _ = wkt.rpartition(",AUTHORITY[")
            self.templates[code] = head + "]"

    def layer(self, number):
        rnd = self.random
        code = rnd.choice(CODES)
        office = rnd.choice(OFFICES)
        name = f"{office}-{number:05d}"
        wkt = self.templates[code]
        x = rnd.uniform(400000.0, 600000.0)
        y = (
            rnd.uniform(5200000.0, 5700000.0)
            if code not in (27700, 2154, 3035)
            else rnd.uniform(2.2e5, 6.0e5)
        )
        w, h = rnd.uniform(500, 9000), rnd.uniform(500, 9000)
        return Layer(name, office, wkt, [(x, y), (x + w, y), (x + w, y + h), (x, y + h)])


class Normaliser:
    def __init__(self):
        self.transformers = {}
        self.unknown = Counter()

    def transformer(self, authority, code):
        key = (authority, code)
        if key not in self.transformers:
            self.transformers[key] = Transformer.from_crs(
                f"{authority}:{code}", "EPSG:4326", always_xy=True
            )
        return self.transformers[key]

    def normalise(self, layer):
        crs = CRS.from_wkt(layer.wkt)
        found = crs.to_authority(min_confidence=25)  # feeds
        if found is None:
            self.unknown[layer.office] += 1
            return None
        authority, code = found
        move = self.transformer(authority, code).transform
        xs, ys = zip(*(move(x, y) for x, y in layer.corners), strict=False)
        return Record(
            layer.name,
            authority,
            code,
            (round(min(xs), 6), round(min(ys), 6), round(max(xs), 6), round(max(ys), 6)),
        )


class Report:
    def __init__(self):
        self.codes = Counter()
        self.area = 0.0

    def add(self, record):
        self.codes[f"{record.authority}:{record.code}"] += 1
        west, south, east, north = record.bounds
        self.area += (east - west) * (north - south)


def main():
    started = time.time()
    catalogue = Catalogue(seed=20221113)
    normaliser = Normaliser()
    report = Report()
    for number in range(1, LAYERS + 1):
        record = normaliser.normalise(catalogue.layer(number))
        if record is not None:
            report.add(record)
        if number % REPORT_EVERY == 0:
            print(
                f"layer {number}/{LAYERS}  known {sum(report.codes.values())}  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    for code, count in report.codes.most_common():
        print(f"{code:12s} {count:6d}")
    print(f"unknown: {dict(normaliser.unknown)}  covered {report.area:.3f} square degrees")


if __name__ == "__main__":
    main()
