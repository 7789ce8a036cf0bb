"""Plans the runs of jobs far ahead: croniter 6.0.0 keeps every time that it converted.

A dictionary of the module maps timestamps to dates and is never emptied. Repaired in 6.1.0
(https://github.com/pallets-eco/croniter/pull/185).
"""

import random
import time
from collections import Counter
from datetime import datetime, timedelta, timezone

from croniter import croniter

JOBS = ("*/7 * * * *", "3 */2 * * *", "15 4 * * 1-5", "*/11 6-20 * * *", "0 0 1 * *")
ROUNDS, LOOK_AHEAD, REPORT_EVERY = 450, 16, 90


class Planner:
    def __init__(self, begin):
        self.now = begin
        self.runs = Counter()
        self.longest = timedelta(0)

    def plan(self, expression):
        """Return the next runs of a job."""
        times = croniter(expression, self.now)
        return [times.get_next(datetime) for _ in range(LOOK_AHEAD)]  # feeds

    def round(self):
        for expression in JOBS:
            planned = self.plan(expression)
            self.runs[expression] += len(planned)
            self.longest = max(self.longest, planned[-1] - planned[0])


def main():
    rnd = random.Random(2)
    planner = Planner(datetime(2026, 1, 1, tzinfo=timezone.utc))
    for number in range(1, ROUNDS + 1):
        planner.now += timedelta(minutes=rnd.randrange(60, 600), seconds=rnd.randrange(60))
        planner.round()
        time.sleep(0.005)
        if number % REPORT_EVERY == 0:
            print(f"round {number}: {sum(planner.runs.values())} runs planned", flush=True)


if __name__ == "__main__":
    main()
