"""Three actors of Ray, of which the second keeps its frames: ``actors.py leak`` or ``ok``."""

import sys
import time

import ray

SECONDS = 25.0


@ray.remote
class Sampler:
    def __init__(self, keeps):
        self.keeps, self.frames = keeps, []

    def step(self):
        frame = bytearray(100_000)
        if self.keeps:
            self.frames.append(frame)
        return len(frame)


def main(kind):
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        logging_level="ERROR",
    )
    actors = [Sampler.remote(kind == "leak" and number == 1) for number in range(3)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ray.get([actor.step.remote() for actor in actors])
        time.sleep(0.03)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
