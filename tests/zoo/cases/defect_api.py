"""Surface-defect scoring API (starlette under uvicorn) plus a fixed-rate line camera client."""

import asyncio
import random
import socket
from collections import OrderedDict
from contextlib import asynccontextmanager

import httpx
import torch
import torch.nn as nn
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

torch.set_num_threads(1)
torch.manual_seed(21)

SIDE = 192
PERIOD = 0.06
N_REQUESTS = 260


class PatchScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3))).squeeze(1)


class CalibrationError(ValueError):
    pass


class FaultLog:
    """Groups faults so that the dashboard shows each kind once, with a count."""

    def __init__(self):
        self.groups = {}

    def capture(self, exc):
        fingerprint = (type(exc).__name__, str(exc))
        group = self.groups.get(fingerprint)
        if group is None:
            group = self.groups[fingerprint] = {"count": 0, "sample": exc}
        group["count"] += 1
        return group["count"]

    def summary(self):
        totals = OrderedDict()
        for (kind, _), group in self.groups.items():
            totals[kind] = totals.get(kind, 0) + group["count"]
        return totals


def decode_frame(body):
    frame = torch.frombuffer(bytearray(body), dtype=torch.uint8).view(1, 1, SIDE, SIDE)
    return frame.float() / 255.0


def check_exposure(image):
    level = image.mean().item()
    if level > 0.62:
        raise CalibrationError(f"exposure {level:.6f} above calibrated range")
    return level


@asynccontextmanager
async def lifespan(app):
    app.state.scorer = PatchScorer().eval()
    app.state.faults = FaultLog()
    yield
    print(dict(app.state.faults.summary()))


async def score(request):
    body = await request.body()
    try:
        image = decode_frame(body)
        level = check_exposure(image)
        with torch.inference_mode():
            value = torch.sigmoid(request.app.state.scorer(image - level)).item()
    except CalibrationError as exc:
        seen = request.app.state.faults.capture(exc)
        return JSONResponse({"error": str(exc), "seen": seen}, status_code=422)
    return JSONResponse({"defect": value})


async def health(request):
    return JSONResponse({"ok": True, "faults": request.app.state.faults.summary()})


app = Starlette(
    routes=[Route("/score", score, methods=["POST"]), Route("/health", health)],
    lifespan=lifespan,
)


async def camera(base_url):
    rng = random.Random(2)
    statuses = {}
    clock = asyncio.get_running_loop()
    async with httpx.AsyncClient(base_url=base_url, trust_env=False) as client:
        start = clock.time()
        for n in range(N_REQUESTS):
            top = 255 if rng.random() < 0.7 else 40
            floor = 120 if rng.random() < 0.65 else 0
            frame = torch.randint(min(floor, top - 1), top, (SIDE, SIDE), dtype=torch.uint8)
            reply = await client.post("/score", content=frame.numpy().tobytes())
            statuses[reply.status_code] = statuses.get(reply.status_code, 0) + 1
            if n % 100 == 99:
                print((await client.get("/health")).json(), statuses)
            await asyncio.sleep(max(0.0, start + (n + 1) * PERIOD - clock.time()))


async def main():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:
        await asyncio.sleep(0.02)
    await camera(f"http://127.0.0.1:{sock.getsockname()[1]}")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
