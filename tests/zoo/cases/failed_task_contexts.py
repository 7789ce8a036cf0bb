"""A service that analyses clips of sound in tasks, and keeps the errors of those that fail."""

import asyncio
from collections import deque

import numpy as np

PER_SECOND, SECONDS, SAMPLES = 60, 15, 8000


class Analyser:
    def __init__(self):
        self.errors = deque()
        self.running = set()
        self.done = 0

    async def analyse(self, clip, payload):
        samples = np.frombuffer(payload, dtype=np.float32)
        spectrum = np.abs(np.fft.rfft(samples)).astype(np.float32)
        await asyncio.sleep(0.005)
        loudest = int(spectrum.argmax())
        if clip % 4 == 3:
            raise ValueError(f"clip {clip}: no pitch at {loudest}")
        return loudest

    def submit(self, clip, payload):
        task = asyncio.create_task(self.analyse(clip, payload))
        self.running.add(task)
        task.add_done_callback(self.finished)

    def finished(self, task):
        self.running.discard(task)
        self.done += 1
        if (error := task.exception()) is not None:
            self.errors.append(error)  # feeds


async def serve():
    rng = np.random.default_rng(0)
    analyser = Analyser()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for clip in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + clip / PER_SECOND - loop.time()))
        payload = rng.standard_normal(SAMPLES, dtype=np.float32).tobytes()
        analyser.submit(clip, payload)
        if clip % 200 == 199:
            print(f"{analyser.done} analysed, {len(analyser.errors)} failed", flush=True)
    await asyncio.sleep(0.1)
    print(f"{analyser.done} analysed, {len(analyser.errors)} failed")


if __name__ == "__main__":
    asyncio.run(serve())
