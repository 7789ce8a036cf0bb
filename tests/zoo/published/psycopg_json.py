"""Stores each batch over its own connection: psycopg 3.2.9 keeps the classes that it made for each.

Repaired in 3.2.10 ("Fix memory leak when lambda/local functions are used as argument for
set_json_dumps(), set_json_loads()", https://github.com/psycopg/psycopg/issues/1108).
"""

import json
import multiprocessing
import random
import socketserver
import struct
import time
from collections import Counter
from decimal import Decimal

import psycopg
from psycopg.types.json import Jsonb, set_json_dumps, set_json_loads

BATCHES = 3600
EVENTS = 42
REPORT_EVERY = 120
JSONB_OID, INT4_OID = 3802, 23


# ------------------------------------------------- PostgreSQL stand-in


class StandIn(socketserver.StreamRequestHandler):
    """Keeps the rows of one connection and gives them back on SELECT."""

    @staticmethod
    def message(kind, body=b""):
        return kind + struct.pack("!i", len(body) + 4) + body

    def startup(self):
        (size,) = struct.unpack("!i", self.rfile.read(4))
        self.rfile.read(size - 4)
        out = self.message(b"R", struct.pack("!i", 0))
        for name, value in (
            ("server_version", "16.3"),
            ("client_encoding", "UTF8"),
            ("standard_conforming_strings", "on"),
            ("TimeZone", "UTC"),
        ):
            out += self.message(b"S", f"{name}\0{value}\0".encode())
        self.wfile.write(
            out + self.message(b"K", struct.pack("!ii", 1, 2)) + self.message(b"Z", b"I")
        )

    def handle(self):
        self.startup()
        query, values, rows, out = b"", [], [], b""
        while head := self.rfile.read(5):
            kind, size = head[:1], struct.unpack("!i", head[1:])[0]
            body = self.rfile.read(size - 4)
            if kind == b"P":
                query = body.split(b"\0")[1]
                out += self.message(b"1")
            elif kind == b"B":
                values = self.bound_values(body)
                out += self.message(b"2")
            elif kind == b"D":
                out += self.describe() if query.startswith(b"SELECT") else self.message(b"n")
            elif kind == b"E":
                if query.startswith(b"SELECT"):
                    for row in rows:
                        out += self.message(b"D", struct.pack("!hi", 1, len(row)) + row)
                    out += self.message(b"C", b"SELECT %d\0" % len(rows))
                else:
                    rows.append(values[-1])
                    out += self.message(b"C", b"INSERT 0 1\0")
            elif kind == b"S":
                self.wfile.write(out + self.message(b"Z", b"I"))
                out = b""
            elif kind == b"X":
                return

    def describe(self):
        return self.message(
            b"T",
            struct.pack("!h", 1) + b"body\0" + struct.pack("!ihihih", 0, 0, JSONB_OID, -1, -1, 0),
        )

    @staticmethod
    def bound_values(body):
        at = body.index(b"\0", body.index(b"\0") + 1) + 1
        (formats,) = struct.unpack_from("!h", body, at)
        at += 2 + 2 * formats
        (count,) = struct.unpack_from("!h", body, at)
        at += 2
        values = []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", body, at)
            values.append(body[at + 4 : at + 4 + size])
            at += 4 + size
        return values


def run_stand_in(pipe):
    with socketserver.TCPServer(("127.0.0.1", 0), StandIn) as server:
        pipe.send(server.server_address[1])
        server.serve_forever()


# ------------------------------------------------------------ the intake


def use_house_json(connection):
    """Compact output with sorted keys; exact numbers on the way back."""

    def dumps(value):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, default=str)

    def loads(text):
        return json.loads(text, parse_float=Decimal)

    set_json_dumps(dumps, connection)  # feeds
    set_json_loads(loads, connection)  # feeds


class Intake:
    def __init__(self, port):
        self.conninfo = (
            f"host=127.0.0.1 port={port} user=intake dbname=events "
            "sslmode=disable gssencmode=disable"
        )
        self.totals = Counter()
        self.amount = Decimal(0)

    def store(self, batch):
        with psycopg.connect(self.conninfo, autocommit=True, prepare_threshold=None) as connection:
            use_house_json(connection)
            with connection.cursor() as cursor:
                for event in batch:
                    cursor.execute(
                        "INSERT INTO events (kind, body) VALUES (%s, %s)",
                        (event["kind"], Jsonb(event)),
                    )
                cursor.execute(
                    "SELECT body FROM events WHERE body->>'batch' = %s ORDER BY id",
                    (str(batch[0]["batch"]),),
                )
                stored = [row[0] for row in cursor.fetchall()]
        self.check(batch, stored)

    def check(self, batch, stored):
        if len(stored) != len(batch):
            raise RuntimeError("lost events")
        for event in stored:
            self.totals[event["kind"]] += 1
            for item in event["items"]:
                self.amount += item["price"] * item["pieces"]


def make_batch(rnd, number):
    return [
        {
            "kind": rnd.choice(("order", "return", "quote")),
            "batch": number,
            "customer": f"c{rnd.randrange(5000):05d}",
            "items": [
                {
                    "sku": f"{rnd.getrandbits(40):010x}",
                    "pieces": rnd.randint(1, 9),
                    "price": round(rnd.uniform(1, 90), 2) + 0.001,
                }
                for _ in range(rnd.randint(4, 20))
            ],
        }
        for _ in range(EVENTS)
    ]


def main():
    started = time.time()
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=run_stand_in, args=(theirs,), daemon=True)
    server.start()
    intake = Intake(mine.recv())
    rnd = random.Random(1108)
    for number in range(1, BATCHES + 1):
        intake.store(make_batch(rnd, number))
        if number % REPORT_EVERY == 0:
            print(
                f"batch {number}/{BATCHES}  events {sum(intake.totals.values())}  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    print("totals:", dict(intake.totals), "amount:", intake.amount)
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
