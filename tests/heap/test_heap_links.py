"""What a chain of links holds is counted once, however many of the links are looked at."""

from __future__ import annotations

import pytest
from heap_programs import RunProgram

TEE = """
import itertools

def batches():
    while True:
        yield (bytes(20_000), bytes(20_000))

ahead, behind = itertools.tee(batches())
for _ in range(600):
    next(ahead)
look()
"""
LINKED = """
class Link:
    def __init__(self, before):
        self.before, self.data = before, bytearray(200_000)

class Chain:
    def __init__(self):
        self.newest = None

    def add(self):
        self.newest = Link(self.newest)

chain = Chain()
for _ in range(50):
    chain.add()
look()
"""


def test_the_blocks_of_a_tee_are_counted_once(run_program: RunProgram) -> None:
    row = run_program(TEE).row("behind")
    assert row.host_bytes > 500 * 40_000
    assert sum(content.bytes for content in row.holds) <= row.host_bytes
    [items] = [content for content in row.holds if content.type == "tuple"]
    assert items.bytes > 0.8 * row.host_bytes


def test_links_of_a_class_of_the_programs_own_are_counted_once(run_program: RunProgram) -> None:
    rows = [row for row in run_program(LINKED).last.rows if row.name.startswith("Chain.newest")]
    assert rows
    for row in rows:
        assert sum(content.bytes for content in row.holds) <= row.host_bytes


@pytest.mark.parametrize("made", ["[bytearray(200_000)]", "(bytearray(200_000), 1)"])
def test_what_a_plain_list_holds_is_reported_by_its_items(
    run_program: RunProgram, made: str
) -> None:
    program = f"kept = []\nfor _ in range(50):\n    kept.append({made})\nlook()\n"
    [holding] = run_program(program).row("kept").holds
    assert (holding.type, holding.count) == ("list" if made[0] == "[" else "tuple", 50)
    assert holding.bytes >= 50 * 200_000
