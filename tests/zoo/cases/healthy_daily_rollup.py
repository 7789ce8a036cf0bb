"""Rolls clicks up into sessions and sessions into days; a day is written out when it is over."""

import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field

PER_SECOND, SECONDS, CLICKS, DAY = 20, 14, 250, 24


@dataclass
class Session:
    user: int
    begun: int
    pages: list[str] = field(default_factory=list)
    stays: list[float] = field(default_factory=list)

    def add(self, page, stay):
        self.pages.append(page)
        self.stays.append(stay)

    @property
    def length(self):
        return sum(self.stays)


class Rollup:
    """Sessions of the day by user, and totals of the days before."""

    def __init__(self, idle=6):
        self.idle = idle
        self.open = {}
        self.closed = defaultdict(list)
        self.totals = []

    def click(self, hour, user, page, stay):
        session = self.open.get(user)
        if session is None or hour - session.begun > self.idle:
            if session is not None:
                self.closed[user].append(session)
            session = self.open[user] = Session(user, hour)
        session.add(page, stay)

    def end_day(self, day):
        every = [s for sessions in self.closed.values() for s in sessions] + list(
            self.open.values()
        )
        text = json.dumps([asdict(session) for session in every])
        longest = max(every, key=lambda s: s.length)
        self.totals.append((day, len(every), longest.length, len(text)))
        self.closed.clear()
        self.open.clear()
        return self.totals[-1]


class Site:
    """More visitors by day than by night, and more on some days than on others."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def hour(self, hour):
        busy = 1 + (hour % DAY in range(8, 20)) + 0.6 * self.random.random()
        for _ in range(int(CLICKS * busy)):
            user = int(self.random.paretovariate(0.8)) % 5000
            page = f"/shelf/{self.random.randrange(300)}/article/{self.random.randrange(90000)}"
            yield user, page, self.random.expovariate(1 / 30)


def main():
    site, rollup = Site(0), Rollup()
    begun = time.monotonic()
    for hour in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + hour / PER_SECOND - time.monotonic()))
        for click in site.hour(hour):
            rollup.click(hour, *click)
        if hour % DAY == DAY - 1:
            day, sessions, longest, size = rollup.end_day(hour // DAY)
            print(f"day {day}: {sessions} sessions, longest {longest:.0f} s, {size >> 10} KiB")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
