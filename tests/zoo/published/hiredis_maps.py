"""Authenticates requests by a session store: hiredis 3.1.0 keeps the pairs of each map it parsed.

Repaired in 3.2.0 ("Fix memory leak in RESP3 map parsing",
https://github.com/redis/hiredis-py/pull/204).
"""

import hashlib
import hmac
import multiprocessing
import random
import socket
import time
from collections import Counter

import hiredis

REQUESTS = 21000
SESSIONS = 800
REPORT_EVERY = 700
SECRET = b"not-so-secret"
ROUNDS = 5000


# ---------------------------------------------------------------- the store


def make_session(number, rnd):
    fields = {
        b"user": b"user-%05d" % number,
        b"tenant": rnd.choice([b"acme", b"globex", b"initech"]),
        b"created": b"%d" % rnd.randint(1_700_000_000, 1_730_000_000),
        b"agent": b"Mozilla/5.0 (X11; Linux x86_64) build/%08x" % rnd.getrandbits(32),
        b"address": b"10.%d.%d.%d" % tuple(rnd.randrange(256) for _ in range(3)),
        b"locale": rnd.choice([b"de_DE", b"en_GB", b"fr_FR"]),
        b"csrf": b"%032x" % rnd.getrandbits(128),
    }
    for right in (b"read", b"write", b"share", b"export", b"admin"):
        fields[b"right:" + right] = b"1" if rnd.random() < 0.6 else b"0"
    digest = hashlib.pbkdf2_hmac("sha256", fields[b"user"] + fields[b"csrf"], SECRET, ROUNDS)
    fields[b"signature"] = digest.hex().encode()
    return fields


def resp3_map(fields):
    out = [b"%%%d\r\n" % len(fields)]
    for item in fields.items():
        for part in item:
            out.append(b"$%d\r\n%s\r\n" % (len(part), part))
    return b"".join(out)


def serve_store(listener, seed):
    rnd = random.Random(seed)
    replies = {b"session:%d" % n: resp3_map(make_session(n, rnd)) for n in range(SESSIONS)}
    connection, _ = listener.accept()
    commands = hiredis.Reader()
    with connection:
        while data := connection.recv(65536):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                name, key = command[0].upper(), command[1]
                if name == b"HGETALL":
                    connection.sendall(replies.get(key, b"%0\r\n"))
                else:
                    connection.sendall(b"+OK\r\n")


# ------------------------------------------------------------- the front end


class SessionStore:
    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.reader = hiredis.Reader(encoding="utf-8")
        self.call("HELLO", "3")

    def call(self, *command):
        self.socket.sendall(hiredis.pack_command(command))
        reply = self.reader.gets()
        while reply is False:
            self.reader.feed(self.socket.recv(65536))
            reply = self.reader.gets()  # feeds
        return reply

    def session(self, number):
        return self.call("HGETALL", f"session:{number}")

    def close(self):
        self.socket.close()


class Gatekeeper:
    def __init__(self, store):
        self.store = store
        self.verdicts = Counter()

    @staticmethod
    def genuine(session):
        base = (session["user"] + session["csrf"]).encode()
        digest = hashlib.pbkdf2_hmac("sha256", base, SECRET, ROUNDS).hex()
        return hmac.compare_digest(digest, session["signature"])

    def admit(self, number, action):
        session = self.store.session(number)
        if not session:
            verdict = "anonymous"
        elif not self.genuine(session):
            verdict = "forged"
        elif session.get(f"right:{action}") != "1":
            verdict = "forbidden"
        else:
            verdict = "admitted"
        self.verdicts[verdict] += 1
        return verdict


def main():
    started = time.time()
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.Process(target=serve_store, args=(listener, 3), daemon=True)
    server.start()
    store = SessionStore(listener.getsockname())
    gatekeeper = Gatekeeper(store)
    rnd = random.Random(17)
    for number in range(1, REQUESTS + 1):
        action = rnd.choice(("read", "write", "share", "export", "admin"))
        gatekeeper.admit(rnd.randrange(SESSIONS + 40), action)
        if number % REPORT_EVERY == 0:
            print(
                f"request {number}/{REQUESTS}  {dict(sorted(gatekeeper.verdicts.items()))}  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    store.close()
    server.join(5)
    print("finished:", dict(gatekeeper.verdicts))


if __name__ == "__main__":
    main()
