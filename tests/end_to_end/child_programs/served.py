"""A service of two processes of ``uvicorn``; each keeps what it answers where KEEPS is set."""

import os

from fastapi import FastAPI

app = FastAPI()
ANSWERS = []


@app.get("/")
def answer():
    block = bytearray(100_000)
    if os.environ.get("KEEPS"):
        ANSWERS.append(block)
    return {"bytes": len(block)}
