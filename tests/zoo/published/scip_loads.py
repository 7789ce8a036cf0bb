"""Plans the loads of a van, day by day: pyscipopt 6.1.0 keeps each model whose events were caught.

Repaired in 6.2.0 ("Removed Py_INCREF/Py_DECREF on Model in catchEvent/dropEvent that caused memory
leak for imbalanced usage", https://github.com/scipopt/PySCIPOpt/pull/1190).
"""

import gc
import random

from pyscipopt import SCIP_EVENTTYPE, Eventhdlr, Model, quicksum

DAYS, PARCELS = 120, 24


class Progress(Eventhdlr):
    """Notes each better load."""

    def __init__(self):
        self.values = []

    def eventinit(self):
        self.model.catchEvent(SCIP_EVENTTYPE.BESTSOLFOUND, self)  # feeds

    def eventexec(self, event):
        self.values.append(self.model.getPrimalbound())


def plan(rng):
    weights = [rng.randint(3, 60) for _ in range(PARCELS)]
    volumes = [rng.randint(3, 60) for _ in range(PARCELS)]
    values = [w + v + rng.randint(0, 25) for w, v in zip(weights, volumes, strict=True)]
    model = Model()  # feeds
    model.hideOutput()
    progress = Progress()
    model.includeEventhdlr(progress, "progress", "notes each better load")
    taken = [model.addVar(f"parcel {index}", vtype="B") for index in range(PARCELS)]  # feeds
    model.addCons(quicksum(w * x for w, x in zip(weights, taken, strict=True)) <= 400)
    model.addCons(quicksum(v * x for v, x in zip(volumes, taken, strict=True)) <= 380)
    model.setObjective(quicksum(v * x for v, x in zip(values, taken, strict=True)), "maximize")
    model.optimize()  # feeds
    return model.getObjVal(), len(progress.values)


def main():
    rng = random.Random(0)
    total = better = 0
    for day in range(1, DAYS + 1):
        value, count = plan(rng)
        total += value
        better += count
        gc.collect()  # a model and its handler are a circle
        if day % 5 == 0:
            print(f"day {day}/{DAYS}: value {total:.0f}, {better} better loads", flush=True)


if __name__ == "__main__":
    main()
