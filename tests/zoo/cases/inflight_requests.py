"""A FastAPI service that scores audio clips; a client in a thread sends it good and bad ones."""

import threading
import time

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request

PER_SECOND, SECONDS, SAMPLES, BANDS = 30, 14, 48000, 64


class InFlight:
    """What is being worked on, for the page of the operators."""

    def __init__(self):
        self.requests = {}
        self.served = 0

    def enter(self, number, clip):
        self.requests[number] = {"clip": clip, "since": time.monotonic()}

    def leave(self, number):
        del self.requests[number]
        self.served += 1


class Scorer:
    def __init__(self):
        self.filters = np.random.default_rng(0).standard_normal((BANDS, 257)).astype(np.float32)

    def score(self, clip):
        if not np.isfinite(clip).all():
            raise ValueError("not a number in clip")
        frames = np.lib.stride_tricks.sliding_window_view(clip, 512)[::256]
        spectrum = np.abs(np.fft.rfft(frames * np.hanning(512))).astype(np.float32)
        energy = np.log1p(spectrum @ self.filters.T**2)
        return float(energy.std(0).mean())


def build():
    app = FastAPI()
    app.state.inflight = InFlight()
    scorer = Scorer()

    @app.post("/clips/{number}")
    async def score(number: int, request: Request):
        clip = np.frombuffer(await request.body(), dtype=np.float32)
        inflight = request.app.state.inflight
        inflight.enter(number, clip)
        try:
            value = scorer.score(clip)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        inflight.leave(number)
        return {"number": number, "score": value}

    @app.get("/health")
    async def health(request: Request):
        return {"served": request.app.state.inflight.served}

    return app


def client(url, failures):
    """Send clips at an even pace; one in five comes from a broken microphone."""
    rng = np.random.default_rng(1)
    begun = time.monotonic()
    with httpx.Client(base_url=url) as session:
        for number in range(PER_SECOND * SECONDS):
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            clip = rng.standard_normal(SAMPLES, dtype=np.float32)
            if number % 5 == 4:
                clip[rng.integers(0, SAMPLES)] = np.nan
            answer = session.post(f"/clips/{number}", content=clip.tobytes())
            failures[0] += answer.status_code != 200
            if number % 60 == 59:
                print(f"{number + 1} sent, {failures[0]} refused", flush=True)


def main():
    config = uvicorn.Config(build(), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    sender = threading.Thread(target=client, args=(f"http://127.0.0.1:{port}", [0]))
    sender.start()
    sender.join()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
