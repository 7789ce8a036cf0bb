"""What answers of a server take longer while it is recorded: 20,000 requests, plainly and recorded
in turn.

A FastAPI application with a small model answers under uvicorn, in a thread of its pool (`def`) and
in the event loop (`async`). Requests come at fixed moments, as from many independent clients, and
the time from there to the answer counts, so that whoever waits in line is counted too.

    python benchmarks/server_latency.py [--requests 20000] [--per-second 400] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

APPLICATION = """
import torch
from fastapi import FastAPI

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
app = FastAPI()


@app.get("/async")
async def answer():
    with torch.no_grad():
        return {"y": model(torch.randn(8, 64)).sum().item()}


@app.get("/def")
def answer_in_a_thread():
    with torch.no_grad():
        return {"y": model(torch.randn(8, 64)).sum().item()}
"""
CONNECTIONS = 32
WARM_UP = 400
RECORDED = ("-m", "leakscope", "run", "--quiet", "--no-report", "--out")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def serve(folder: Path, port: int, *, recorded: bool) -> subprocess.Popen[bytes]:
    start = [*RECORDED, str(folder / f"run-{port}")] if recorded else []
    server = ["-m", "uvicorn", "--port", str(port), "--log-level", "error", "application:app"]
    return subprocess.Popen(
        [sys.executable, *start, *server],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


async def ask(port: int, path: str, requests: int, per_second: float) -> list[float]:
    """Return the seconds from the moment that each request was due to its answer."""
    took: list[float] = []
    begun = time.perf_counter() + 0.2
    numbers = iter(range(requests))

    async def client() -> None:
        reader, writer = await _connected(port)
        for number in numbers:
            due = begun + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
            took.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return took


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for _ in range(300):
        with contextlib.suppress(OSError):
            return await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.1)
    raise SystemExit("the server does not answer")


def measure(path: str, requests: int, per_second: float, *, recorded: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "application.py").write_text(APPLICATION)
        port = free_port()
        server = serve(Path(folder), port, recorded=recorded)
        try:
            asyncio.run(ask(port, path, WARM_UP, per_second))
            took = sorted(asyncio.run(ask(port, path, requests, per_second)))
        finally:
            os.killpg(server.pid, signal.SIGINT)
            server.wait(60)
    return {f"p{share:g}": 1e3 * took[int(share / 100 * len(took))] for share in (50, 99, 99.9)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--per-second", type=float, default=400.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paths", nargs="*", default=["/async", "/def"])
    options = parser.parse_args()
    for path in options.paths:
        seen: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for turn in range(options.rounds):
            for recorded in (False, True) if turn % 2 == 0 else (True, False):
                found = measure(path, options.requests, options.per_second, recorded=recorded)
                seen[recorded].append(found)
                figures = "  ".join(f"{name} {value:.2f} ms" for name, value in found.items())
                print(f"{path} {'recorded' if recorded else 'plain   '} {figures}", flush=True)
        for name in seen[True][0]:
            pairs = zip(seen[True], seen[False], strict=True)
            ratios = [with_[name] / without[name] for with_, without in pairs]
            each = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
            print(f"{path} {name}: {statistics.median(ratios):.2f} times plain ({each})")


if __name__ == "__main__":
    main()
