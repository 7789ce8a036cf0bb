"""Sums the fluxes of nights: astropy 7.0.0 keeps the data of each copy of a table.

Repaired in 7.0.1 ("Fix memory leak in BinTableHDU.copy()",
https://github.com/astropy/astropy/pull/16143).
"""

import pathlib
import tempfile

import numpy as np
from astropy.io import fits

NIGHTS, FILES, STARS = 480, 8, 6000


def write(folder, rng):
    paths = []
    for number in range(FILES):
        path = pathlib.Path(folder) / f"night{number}.fits"
        columns = [
            fits.Column("flux", "D", array=rng.gamma(2.0, 100.0, STARS)),
            fits.Column("error", "D", array=rng.gamma(2.0, 3.0, STARS)),
            fits.Column("star", "10A", array=np.array([f"HD {n}" for n in range(STARS)])),
        ]
        fits.BinTableHDU.from_columns(columns).writeto(path)
        paths.append(path)
    return paths


def main():
    rng = np.random.default_rng(0)
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, rng)
        for night in range(1, NIGHTS + 1):
            with fits.open(paths[night % FILES]) as file:
                table = file[1].copy()  # feeds
                good = table.data["error"] < 10
                total += float(np.median(table.data["flux"][good]))
                stars = len({name[:5] for name in table.data["star"]})
            if night % 25 == 0:
                print(f"night {night}/{NIGHTS}: {total / night:.3f}, {stars} groups", flush=True)


if __name__ == "__main__":
    main()
