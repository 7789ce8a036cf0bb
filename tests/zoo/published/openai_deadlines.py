"""Embeds questions with a deadline for each: openai 1.3.7 keeps each client that has options.

A method cached without limit holds what it was called on. Repaired in 1.3.8 ("avoid leaking memory
when Client.with_options is used", https://github.com/openai/openai-python/issues/865).
"""

import json
import random
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai

QUESTIONS, PER_SECOND, WIDTH, ARTICLES = 480, 40, 24, 60
REPORT_EVERY = 80
MODEL = "small-embedder"


class Embedder(BaseHTTPRequestHandler):
    """Stands for the server of embeddings."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rnd = random.Random(asked["input"])
        vector = [round(rnd.gauss(0.0, 1.0), 5) for _ in range(WIDTH)]
        data = [{"object": "embedding", "index": 0, "embedding": vector}]
        usage = {"prompt_tokens": len(asked["input"]), "total_tokens": len(asked["input"])}
        answer = {"object": "list", "model": MODEL, "data": data, "usage": usage}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class Search:
    def __init__(self, port):
        base = f"http://127.0.0.1:{port}/v1"
        self.client = openai.OpenAI(api_key="local", base_url=base, max_retries=0)
        rnd = random.Random(1)
        self.articles = [[rnd.gauss(0.0, 1.0) for _ in range(WIDTH)] for _ in range(ARTICLES)]

    def embed(self, text, left):
        """Ask for a vector, which must come while the caller still waits."""
        client = self.client.with_options(timeout=left)  # feeds
        answer = client.embeddings.create(model=MODEL, input=text, encoding_format="float")  # feeds
        return answer.data[0].embedding

    def nearest(self, question, left):
        """Return the number of the article that fits a question best."""
        vector = self.embed(question, left)
        fits = [
            sum(a * b for a, b in zip(vector, article, strict=True)) for article in self.articles
        ]
        return fits.index(max(fits))


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Embedder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    search, rnd, found = Search(server.server_address[1]), random.Random(0), deque(maxlen=20)
    begun = time.monotonic()
    for number in range(1, QUESTIONS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        question = f"how do I mend part {rnd.randrange(10**6)}?"
        found.append(search.nearest(question, left=rnd.uniform(5.0, 9.0)))
        if number % REPORT_EVERY == 0:
            print(f"{number} questions, last found {list(found)[-5:]}", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
