"""Turns support tickets into record batches: pyarrow 15.0.2 keeps the items of each struct.

Repaired in 16.0.0 (https://github.com/apache/arrow/issues/37989, pull request 40412).
"""

import io
import json
import random
import string
import time
from dataclasses import dataclass

import pyarrow as pa

TICKETS = 4000
REPORT_EVERY = 200
SEGMENT_BYTES = 256 * 1024

MESSAGE = pa.struct(
    [
        ("author", pa.string()),
        ("lines", pa.list_(pa.string())),
    ]
)
CUSTOMER = pa.struct(
    [
        ("name", pa.string()),
        ("mail", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("priority", pa.int8()),
        ("customer", CUSTOMER),
        ("message", MESSAGE),
    ]
)


class TicketSource:
    """Makes up tickets; in production this is a consumer of the queue."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.next_id = 1

    def words(self, count: int) -> str:
        return " ".join(
            "".join(self.random.choices(string.ascii_lowercase, k=self.random.randint(3, 9)))
            for _ in range(count)
        )

    def fetch(self) -> str:
        ticket = {
            "id": self.next_id,
            "priority": self.random.randint(1, 5),
            "customer": {
                "name": self.words(2).title(),
                "mail": self.words(1) + "@example.org",
                "tags": [self.words(1) for _ in range(4)],
            },
            "message": {
                "author": self.words(1),
                "lines": [self.words(11) for _ in range(60)],
            },
        }
        self.next_id += 1
        return json.dumps(ticket)


@dataclass
class Segment:
    """One IPC stream in memory, shipped when it has grown enough."""

    sink: io.BytesIO
    writer: pa.RecordBatchStreamWriter
    rows: int = 0

    @classmethod
    def start(cls) -> "Segment":
        sink = io.BytesIO()
        return cls(sink, pa.ipc.new_stream(sink, SCHEMA))

    def append(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)
        self.rows += batch.num_rows

    def finish(self) -> bytes:
        self.writer.close()
        return self.sink.getvalue()


class Ingest:
    def __init__(self, source: TicketSource):
        self.source = source
        self.segment = Segment.start()
        self.shipped = 0
        self.shipped_bytes = 0
        self.urgent = 0

    def to_batch(self, ticket: dict) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([ticket], schema=SCHEMA)  # feeds

    def handle_one(self) -> None:
        ticket = json.loads(self.source.fetch())
        batch = self.to_batch(ticket)
        if ticket["priority"] == 1:
            self.urgent += 1
        self.segment.append(batch)
        if self.segment.sink.tell() >= SEGMENT_BYTES:
            self.ship()

    def ship(self) -> None:
        data = self.segment.finish()
        self.shipped += 1
        self.shipped_bytes += len(data)
        with pa.ipc.open_stream(data) as reader:  # read it back, to be sure
            rows = sum(batch.num_rows for batch in reader)
        if rows != self.segment.rows:
            raise RuntimeError("segment is broken")
        self.segment = Segment.start()


def main() -> None:
    ingest = Ingest(TicketSource(seed=3))
    for number in range(1, TICKETS + 1):
        ingest.handle_one()
        time.sleep(0.004)  # the queue is not that full
        if number % REPORT_EVERY == 0:
            print(
                f"ticket {number}/{TICKETS}: {ingest.shipped} segments, "
                f"{ingest.shipped_bytes >> 10} KiB shipped, {ingest.urgent} urgent",
                flush=True,
            )
    ingest.ship()
    print("done:", ingest.shipped, "segments")


if __name__ == "__main__":
    main()
