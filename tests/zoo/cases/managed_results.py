"""Scans a grid of parameters of a predator-prey model with workers that share a managed dict."""

import multiprocessing as mp
import time

import numpy as np

JOBS, PER_SECOND, POINTS = 150, 12, 12000


class LotkaVolterra:
    def __init__(self, birth, hunt, death, gain=0.02):
        self.birth, self.hunt, self.death, self.gain = birth, hunt, death, gain

    def path(self, points, step=0.01, many=16):
        """Return paths from several beginnings at once."""
        prey, hunters = np.linspace(20, 60, many), np.full(many, 9.0)
        path = np.empty((points // many, 2, many), dtype=np.float32)
        for at in range(len(path)):
            eaten = self.hunt * prey * hunters
            prey = prey + step * (self.birth * prey - eaten)
            hunters = hunters + step * (self.gain / 0.04 * eaten - self.death * hunters)
            path[at] = prey, hunters
        return path


def work(jobs, results):
    while (job := jobs.get()) is not None:
        number, settings = job
        path = LotkaVolterra(**settings).path(POINTS)
        results[number] = {"settings": settings, "path": path, "period": float(path[:, 0].std())}


class Scan:
    """Hands out jobs at a pace that leaves the machine usable, and looks at what came last."""

    def __init__(self, manager, workers):
        self.jobs = manager.Queue()
        self.results = manager.dict()
        self.workers = [
            mp.Process(target=work, args=(self.jobs, self.results), daemon=True)
            for _ in range(workers)
        ]

    def run(self):
        for worker in self.workers:
            worker.start()
        rng, begun = np.random.default_rng(0), time.monotonic()
        for number in range(JOBS):
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            birth, hunt, death = rng.uniform([0.6, 0.02, 0.3], [1.2, 0.05, 0.6]).tolist()
            self.jobs.put((number, {"birth": birth, "hunt": hunt, "death": death}))
            if number % 30 == 29:
                last = self.results.get(number - 10)
                print(f"{number + 1} jobs, period {last and last['period']}", flush=True)
        for worker in self.workers:
            self.jobs.put(None)
        for worker in self.workers:
            worker.join()
        return len(self.results)


def main():
    with mp.Manager() as manager:
        print(f"{Scan(manager, workers=1).run()} paths")


if __name__ == "__main__":
    main()
