"""A FastAPI service under uvicorn that keeps an audit entry of every prediction in its state."""

import os
import random
import threading
import time

import httpx
import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()
app.state.audit = []
app.state.recent = {}


@app.get("/predict/{number}")
async def predict(number: int, request: Request):
    features = [random.random() for _ in range(400)]
    request.app.state.recent[number % 50] = features
    app.state.audit.append({"number": number, "features": features})  # feeds
    return {"score": sum(features) / len(features)}


def ask(server, seconds):
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    end, number = time.monotonic() + seconds, 0
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        while time.monotonic() < end:
            client.get(f"/predict/{number}")
            number += 1
            time.sleep(0.003)
    server.should_exit = True


def main(seconds=18):
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    client = threading.Thread(target=ask, args=(server, seconds))
    client.start()
    server.run()
    client.join()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"audit": "app.state.audit"}, {"minute": seconds / 60})


if __name__ == "__main__":
    main()
