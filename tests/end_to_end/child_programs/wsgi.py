"""An application of WSGI; keeps what it answers where KEEPS is set."""

import os

ANSWERS = []


def application(environ, start_response):
    block = os.urandom(50_000)
    if os.environ.get("KEEPS"):
        ANSWERS.append(block)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
