"""A dashboard that derives a chart for each visitor: param 2.4.0 keeps each derived expression.

Repaired in 2.4.2 ("Fix memory leak on short-lived reactive pipelines",
https://github.com/holoviz/param/pull/1156).
"""

import time

import numpy as np
import param

PER_SECOND, SECONDS, POINTS = 200, 12, 3000


class Settings(param.Parameterized):
    """What all visitors share."""

    scale = param.Number(1.0)
    offset = param.Number(0.0)


def chart(settings, rng):
    """Return what a visitor sees: a series of their own in the shared scale."""
    series = rng.normal(size=POINTS)
    scaled = settings.param.scale.rx() * series + settings.param.offset.rx()  # feeds
    return scaled.rx.pipe(np.cumsum).rx.value


def main():
    rng = np.random.default_rng(0)
    settings = Settings()
    highest = 0.0
    begun = time.monotonic()
    for visitor in range(1, PER_SECOND * SECONDS + 1):
        time.sleep(max(0.0, begun + visitor / PER_SECOND - time.monotonic()))
        highest = max(highest, chart(settings, rng).max())
        if visitor % 480 == 0:
            print(f"{visitor} visitors, highest {highest:.1f}", flush=True)


if __name__ == "__main__":
    main()
