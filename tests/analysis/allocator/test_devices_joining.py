"""Storages found among blocks: against a look at every single byte."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from leakscope.analysis.allocator.devices import NO_OWNER, StorageSpan, join
from leakscope.model.device import Block, BlockState


def live(address: int, size: int, requested: int) -> Block:
    return Block(address, size, requested, BlockState.ALLOCATED)


def byte_by_byte(
    blocks: list[Block], storages: list[StorageSpan]
) -> tuple[list[dict[int, int]], int]:
    """The owner of each byte: by rank, then by size, then the first storage that has it."""
    astray = 0
    inside: dict[int, list[StorageSpan]] = {}
    for s in storages:
        at = next(
            (i for i, b in enumerate(blocks) if s.start in range(b.address, b.address + b.size)),
            None,
        )
        if at is None:
            astray += s.size
        else:
            inside.setdefault(at, []).append(s)
    return [_owners(b, inside.get(i, [])) for i, b in enumerate(blocks)], astray


def _owners(block: Block, storages: list[StorageSpan]) -> dict[int, int]:
    found: Counter[int] = Counter()
    rounding = 0
    for byte in range(block.address, block.address + block.size):
        here = [s for s in storages if s.start <= byte < s.start + s.size]
        if here:
            found[min(here, key=lambda s: (s.rank, -s.size, s.start, s.owner)).owner] += 1
        elif byte < block.address + block.requested:
            found[NO_OWNER] += 1
        else:
            rounding += 1
    owned = {o: n for o, n in found.items() if o != NO_OWNER}
    largest = max(owned, key=lambda o: (owned[o], -o)) if owned else NO_OWNER
    found[largest] += rounding
    return {o: n for o, n in found.items() if n}


@st.composite
def spans(draw: st.DrawFn) -> list[Block]:
    """Blocks with gaps between them, in no order."""
    found, at = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 16))
        found.append(live(at, size, draw(st.integers(0, size + 2))))
        at += size + draw(st.integers(0, 4))
    return draw(st.permutations(found))


STORED = st.builds(StorageSpan, st.integers(0, 90), st.integers(1, 40), st.integers(0, 2),
                   st.integers(0, 4))  # fmt: skip


@given(spans(), st.lists(STORED, max_size=12))
def test_every_byte_goes_to_whom_a_look_at_it_would_give_it(
    blocks: list[Block], storages: list[StorageSpan]
) -> None:
    found = join(blocks, storages)
    parts, astray = byte_by_byte(blocks, storages)
    assert found.parts == parts
    assert found.astray == astray
    assert [sum(p.values()) for p in found.parts] == [b.size for b in blocks]


def test_what_rounding_adds_is_the_owners() -> None:
    (parts,), _ = join([live(1024, 512, 4)], [StorageSpan(1024, 4, 0, 7)])
    assert parts == {7: 512}


def test_an_arena_that_somebody_divides_has_several_owners_and_a_rest() -> None:
    arena = live(0, 1000, 1000)
    (parts,), _ = join([arena], [StorageSpan(100, 300, 0, 1), StorageSpan(500, 200, 0, 2)])
    assert parts == {1: 300, 2: 200, NO_OWNER: 500}


def test_views_of_one_flat_storage_are_counted_once() -> None:
    flat = StorageSpan(0, 1000, 0, 1)
    (parts,), _ = join(
        [live(0, 1024, 1000)], [flat, StorageSpan(0, 500, 1, 2), StorageSpan(500, 500, 1, 2)]
    )
    assert parts == {1: 1024}


def test_storages_outside_of_all_blocks_are_astray() -> None:
    found = join([live(100, 10, 10)], [StorageSpan(99, 4, 0, 1), StorageSpan(110, 6, 0, 1)])
    assert (found.astray, found.parts) == (10, [{NO_OWNER: 10}])
