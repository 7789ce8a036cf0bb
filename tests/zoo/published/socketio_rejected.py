"""A chat server that turns most callers away: python-socketio 1.8.1 keeps the request of each.

Repaired in 1.8.2 ("fixed memory leak on rejected connections",
https://github.com/miguelgrinberg/Flask-SocketIO/issues/574).
"""

import io
import random
import sys
import time

import socketio

PER_SECOND, SECONDS = 60, 14


def request(rng, number):
    """Return the WSGI environment of a client that wants to connect."""
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/socket.io/",
        "QUERY_STRING": "transport=polling&EIO=3",
        "REMOTE_ADDR": f"10.0.{number // 250 % 250}.{number % 250}",
        "HTTP_COOKIE": f"session={rng.randbytes(3000).hex()}",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
    }


def main():
    rng = random.Random(0)
    server = socketio.Server(async_mode="threading", async_handlers=False)
    counts = {True: 0, False: 0}

    @server.on("connect")
    def connect(sid, environ):
        is_known = environ["HTTP_COOKIE"].startswith("session=00")
        counts[is_known] += 1
        return is_known

    begun = time.monotonic()
    for number in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        server.handle_request(request(rng, number), lambda status, headers: None)  # feeds
        if number % 210 == 209:
            print(f"{counts[True]} let in, {counts[False]} turned away", flush=True)


if __name__ == "__main__":
    main()
