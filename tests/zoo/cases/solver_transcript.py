"""Tunes schedules with a solver in a child process, whose trace a thread reads."""

import json
import subprocess
import sys
import threading
import time

import numpy as np

JOBS, MACHINES, INSTANCES, PER_SECOND = 24, 6, 48, 4


def solve(instance, out, iterations=600):
    """Improve a schedule by swaps; write each step that is taken."""
    rng = np.random.default_rng(instance["seed"])
    times = np.array(instance["times"])
    order = rng.permutation(len(times))

    def makespan(order):
        ends = np.zeros(times.shape[1])
        for job in order:
            at = 0.0
            for machine, length in enumerate(times[job]):
                at = max(at, ends[machine]) + length
                ends[machine] = at
        return float(ends[-1])

    best, heat = makespan(order), 8.0
    for iteration in range(iterations):
        a, b = rng.integers(0, len(order), 2)
        order[[a, b]] = order[[b, a]]
        now = makespan(order)
        if now <= best or rng.random() < np.exp((best - now) / heat):
            best = now
            if iteration % 2 == 0:
                line = f"trace {instance['seed']} it={iteration} cost={now:.3f} heat={heat:.3f} "
                print(line + " ".join(map(str, order.tolist())), file=sys.stderr)
        else:
            order[[a, b]] = order[[b, a]]
        heat *= 0.995
    out.write(json.dumps({"cost": best, "order": order.tolist()}) + "\n")
    out.flush()
    sys.stderr.flush()


def serve():
    for line in sys.stdin:
        solve(json.loads(line), sys.stdout)


class Trace(threading.Thread):
    """Reads what the solver writes of its steps, so that its pipe never fills."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream = stream
        self.lines = []
        self.lowest = float("inf")

    def run(self):
        for line in self.stream:
            words = line.split()
            self.lines.append((time.monotonic(), words))
            cost = float(words[3].partition("=")[2])
            self.lowest = min(self.lowest, cost)

    def tail(self, count=5):
        return [" ".join(words) for _, words in self.lines[-count:]]


class Solver:
    def __init__(self):
        self.child = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.trace = Trace(self.child.stderr)
        self.trace.start()

    def ask(self, instance):
        self.child.stdin.write(json.dumps(instance) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            raise RuntimeError("\n".join(self.trace.tail()))
        return json.loads(answer)

    def close(self):
        self.child.stdin.close()
        self.child.wait()
        self.trace.join()


def main():
    rng = np.random.default_rng(0)
    solver = Solver()
    costs = []
    begun = time.monotonic()
    for number in range(INSTANCES):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        times = rng.gamma(2.0, 3.0, (JOBS, MACHINES)).round(2)
        answer = solver.ask({"seed": number, "times": times.tolist()})
        costs.append(answer["cost"] / times.sum(0).max())
        if number % 8 == 7:
            print(f"{number + 1} solved, {np.mean(costs):.4f} of the bound", flush=True)
    solver.close()


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
