"""Checks the schedules that users type: croniter 6.1.0 keeps the fields of every expression.

A dictionary of the module maps each expression to its fields and is never emptied. Repaired in
6.2.0 (https://github.com/pallets-eco/croniter/pull/185).
"""

import random
import time
from collections import Counter
from datetime import datetime, timezone

from croniter import CroniterError, croniter

ROUNDS, USERS, REPORT_EVERY = 300, 80, 60


class User:
    """Types a schedule, now and then a wrong one."""

    def __init__(self, rnd):
        self.random = rnd

    def schedule(self):
        minutes = sorted(self.random.sample(range(60), 6))
        hours = sorted(self.random.sample(range(24), 3))
        if self.random.random() < 0.1:
            hours.append(77)
        days = self.random.choice(("*", "1-5", "0,6", "2"))
        return f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * {days}"


class Form:
    def __init__(self, now):
        self.now = now
        self.answers = Counter()

    def next_run(self, expression):
        """Return when a schedule would run next, or nothing where it is wrong."""
        try:
            times = croniter(expression, self.now)  # feeds
        except CroniterError:
            self.answers["refused"] += 1
            return None
        self.answers["accepted"] += 1
        return times.get_next(datetime)


def main():
    user, form = User(random.Random(4)), Form(datetime(2026, 3, 1, tzinfo=timezone.utc))
    soonest = None
    for number in range(1, ROUNDS + 1):
        found = [form.next_run(user.schedule()) for _ in range(USERS)]
        soonest = min(time_ for time_ in (*found, soonest) if time_ is not None)
        time.sleep(0.003)
        if number % REPORT_EVERY == 0:
            print(f"round {number}: {dict(form.answers)}, soonest {soonest:%H:%M}", flush=True)


if __name__ == "__main__":
    main()
