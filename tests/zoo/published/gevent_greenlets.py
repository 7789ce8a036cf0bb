"""Checks services, each in a greenlet: greenlet 2.0.0 keeps the frame memory of those that ended.

Repaired in 2.0.1 ("Python 3.11: Fix a memory leak",
https://github.com/python-greenlet/greenlet/issues/328).
"""

import hashlib
import multiprocessing
import random
import socketserver
import threading
import time
from collections import defaultdict, deque

import gevent
from gevent import socket
from gevent.pool import Pool

CHECKS = 11000
SERVICES = 8
AT_ONCE = 14
REPORT_EVERY = 360
WORK = 7500


# ------------------------------------------------------------- services


class Service(socketserver.StreamRequestHandler):
    def handle(self):
        challenge = self.rfile.readline().strip()
        answer = hashlib.sha256(challenge).hexdigest()
        if challenge.endswith(b"7f"):  # a service that has a bad day
            answer = answer[::-1]
        self.wfile.write(answer.encode() + b"\n")


class Rack(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def run_rack(pipe):
    servers = [Rack(("127.0.0.1", 0), Service) for _ in range(SERVICES)]
    pipe.send([s.server_address[1] for s in servers])
    threads = [threading.Thread(target=s.serve_forever, daemon=True) for s in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -------------------------------------------------------------- monitor


class History:
    """The last results of one service; old ones fall out."""

    def __init__(self, keep=50):
        self.times = deque(maxlen=keep)
        self.failures = 0
        self.checks = 0

    def add(self, ok, seconds):
        self.checks += 1
        self.failures += not ok
        self.times.append(seconds)

    def typical(self):
        ordered = sorted(self.times)
        return ordered[len(ordered) // 2] if ordered else 0.0


class Monitor:
    def __init__(self, ports, seed):
        self.ports = ports
        self.random = random.Random(seed)
        self.histories = defaultdict(History)
        self.pool = Pool(AT_ONCE)
        self.finished = 0
        self.started = time.time()

    def check(self, port, challenge):
        begin = time.time()
        ok = False
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(challenge + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    part = connection.recv(4096)
                    if not part:
                        break
                    answer += part
            ok = answer.strip() == hashlib.sha256(challenge).hexdigest().encode()
        except OSError:
            pass
        self.note(port, ok, time.time() - begin)

    def note(self, port, ok, seconds):
        self.histories[port].add(ok, seconds)
        hashlib.pbkdf2_hmac("sha256", b"%d" % port, b"audit", WORK)  # sign the audit line
        self.finished += 1
        if self.finished % REPORT_EVERY == 0:
            failures = sum(h.failures for h in self.histories.values())
            print(
                f"check {self.finished}/{CHECKS}  failures {failures}  "
                f"{time.time() - self.started:5.1f} s",
                flush=True,
            )

    def run(self):
        for _ in range(CHECKS):
            port = self.random.choice(self.ports)
            challenge = b"%016x" % self.random.getrandbits(64)
            self.pool.spawn(self.check, port, challenge)  # feeds
            gevent.sleep(0)
        self.pool.join()


def main():
    mine, theirs = multiprocessing.Pipe()
    rack = multiprocessing.Process(target=run_rack, args=(theirs,), daemon=True)
    rack.start()
    monitor = Monitor(mine.recv(), seed=328)
    monitor.run()
    for number, port in enumerate(monitor.ports):
        h = monitor.histories[port]
        print(
            f"service {number}: {h.checks:5d} checks, {h.failures:3d} failures, "
            f"{1000 * h.typical():6.2f} ms typical"
        )
    rack.terminate()
    rack.join()


if __name__ == "__main__":
    main()
