"""Follows the conversations of a packet capture that arrives in segments, and finds their openings."""

import random
import struct
import time
import zlib
from dataclasses import dataclass, field

SEGMENTS_PER_SECOND, SECONDS, SEGMENT = 20, 12, 192 * 1024
RECORD = struct.Struct("<IHH")


@dataclass
class Flow:
    """One conversation between two hosts."""

    key: tuple[int, int]
    packets: int = 0
    size: int = 0
    opening: memoryview | None = None
    checksums: list[int] = field(default_factory=list)


class Capture:
    """Makes segments as a tap would deliver them: records of a header and a payload."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.next_host = 1000

    def segment(self) -> bytes:
        out = bytearray()
        hosts = [(1, self.random.randrange(50)) for _ in range(40)]
        hosts[7] = (2, self.next_host)
        self.next_host += 1
        while len(out) < SEGMENT:
            subnet, host = hosts[len(out) // 1400 % 40]
            size = self.random.randrange(600, 1400)
            out += RECORD.pack(host, subnet, size) + self.random.randbytes(size)
        return bytes(out)


class FlowTable:
    """All flows by their key, with the first bytes of each for the classifier of protocols."""

    def __init__(self, opening_bytes: int = 96):
        self.opening_bytes = opening_bytes
        self.flows: dict[tuple[int, int], Flow] = {}

    def feed(self, segment: bytes) -> int:
        view, at, count = memoryview(segment), 0, 0
        while at + RECORD.size <= len(view):
            host, subnet, size = RECORD.unpack_from(view, at)
            payload = view[at + RECORD.size : at + RECORD.size + size]
            flow = self.flows.get((subnet, host))
            if flow is None:
                flow = Flow((subnet, host), opening=payload[: self.opening_bytes])
                self.flows[flow.key] = flow
            flow.packets += 1
            flow.size += size
            if len(flow.checksums) < 4:
                flow.checksums.append(zlib.crc32(payload))
            at += RECORD.size + size
            count += 1
        return count


def busiest(table: FlowTable, count: int = 3) -> str:
    top = sorted(table.flows.values(), key=lambda flow: -flow.size)[:count]
    return ", ".join(f"{flow.key[1]}: {flow.size >> 10} KiB" for flow in top)


def main() -> None:
    capture, table, packets = Capture(seed=4), FlowTable(), 0
    begun = time.monotonic()
    for number in range(SEGMENTS_PER_SECOND * SECONDS):
        due = begun + number / SEGMENTS_PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        packets += table.feed(capture.segment())
        if number % 60 == 59:
            print(f"{packets} packets, {len(table.flows)} flows, {busiest(table)}", flush=True)


if __name__ == "__main__":
    main()
