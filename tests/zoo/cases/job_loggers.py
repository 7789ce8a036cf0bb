"""A job runner that gives each job a logger with a MemoryHandler."""

import logging
import logging.handlers
import random
import time


class Console(logging.Handler):
    """Counts lines."""

    def __init__(self):
        super().__init__()
        self.lines = 0

    def emit(self, record):
        self.lines += 1


console = Console()


def run_job(number, rng):
    logger = logging.getLogger(f"jobs.{number}")  # feeds
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    memory = logging.handlers.MemoryHandler(capacity=1000, flushLevel=logging.ERROR, target=console)
    logger.addHandler(memory)  # feeds
    value = rng.random()
    for iteration in range(60):
        value = 3.9 * value * (1 - value)
        logger.debug("iteration %d of job %d: value %.6f", iteration, number, value)  # feeds
    if value > 0.98:
        logger.error("job %d went astray", number)
    return value


def main():
    rng = random.Random(0)
    results = 0.0
    for number in range(900):
        results += run_job(number, rng)
        time.sleep(0.012)
        if number % 150 == 0:
            print("job", number, "mean", results / (number + 1), "lines", console.lines)


if __name__ == "__main__":
    main()
