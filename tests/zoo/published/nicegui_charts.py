"""Sorts the points of a chart anew: nicegui 3.14.0 keeps each list in which a point was.

Each list registers a handler with each of its points, and none goes. Repaired in 3.15.0 ("Detach
removed items from ObservableCollection and reference containers weakly",
https://github.com/zauberzeug/nicegui/pull/6140).
"""

import random

from nicegui.observables import ObservableDict

UPDATES, POINTS = 9000, 250


class Dashboard:
    def __init__(self, rng):
        self.changes = 0
        self.rng = rng
        self.options = ObservableDict({"title": "load", "series": []}, on_change=self.changed)
        self.options["pool"] = [
            {"host": f"host{index}", "load": rng.random()} for index in range(POINTS)
        ]

    def changed(self):
        self.changes += 1

    def refresh(self):
        hosts = self.options["pool"]
        order = self.rng.sample(range(POINTS), POINTS)
        self.options["series"] = [hosts[index] for index in order]  # feeds


def main():
    dashboard = Dashboard(random.Random(0))
    for update in range(1, UPDATES + 1):
        dashboard.refresh()
        if update % 200 == 0:
            top = max(point["load"] for point in dashboard.options["series"])
            print(f"update {update}/{UPDATES}: {dashboard.changes} changes, {top:.3f}", flush=True)


if __name__ == "__main__":
    main()
