"""NumPy: what an array owns, whose memory it shares, and the objects among its items."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from payloads import ENGINES, KB, payload, retained, seen


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def weight(engine: str, value: object) -> int:
    return seen(engine, value, max_depth=0).nodes.shallow_bytes[0]


OWNING: dict[str, Callable[[], Any]] = {
    "one number": lambda: np.array(5.0),
    "no numbers": lambda: np.zeros((0, 3)),
    "three dimensions": lambda: np.zeros((4, 5, 6)),
    "in Fortran's order": lambda: np.zeros((4, 5), order="F"),
    "turned": lambda: np.zeros((4, 5, 6)).transpose(1, 0, 2).copy(order="K"),
    "records": lambda: np.zeros(9, dtype=[("a", "f8"), ("b", "i2", (3,))]),
    "texts": lambda: np.array(["one", "three"]),
    "dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "objects": lambda: np.array([1.5, "two"], dtype=object),
    "a view": lambda: np.zeros((5, 5))[1:],
    "spread": lambda: np.broadcast_to(np.zeros(3), (1000, 3)),
}


@pytest.mark.parametrize("name", OWNING)
def test_an_array_weighs_what_getsizeof_says(engine: str, name: str) -> None:
    array = OWNING[name]()
    assert weight(engine, array) == sys.getsizeof(array)


def test_a_spread_array_retains_its_small_base(engine: str) -> None:
    spread = np.broadcast_to(np.zeros(KB), (100, KB))
    assert payload(engine, spread) == {"host": 8 * KB}


def test_a_masked_array_has_data_and_mask(engine: str) -> None:
    masked = np.ma.masked_array(np.zeros(KB), mask=np.ones(KB, dtype=bool))
    assert payload(engine, masked) == {"host": 9 * KB}


BIG = 50 * KB
OBJECTS: dict[str, Callable[[], Any]] = {
    "in a row": lambda: np.array([None, bytearray(BIG)], dtype=object),
    "alone": lambda: _alone(),
    "seen through a view": lambda: np.array([bytearray(BIG), 1, 2], dtype=object)[1:],
    "in Fortran's order": lambda: np.asfortranarray([[None, bytearray(BIG)], [1, 2]], dtype=object),
    "turned": lambda: _turned(),
    "in a field": lambda: np.array([(1, bytearray(BIG))], dtype=[("a", "i4"), ("b", "O")]),
    "in a field of a field": lambda: np.array(
        [((1, bytearray(BIG)),)], dtype=[("outer", [("a", "i1"), ("b", "O")])]
    ),
    "in a record": lambda: np.array([(1, bytearray(BIG))], dtype=[("a", "i4"), ("b", "O")])[0],
    "in a record array": lambda: np.rec.array([(1, bytearray(BIG))], dtype="i4, O"),
}


def _alone() -> Any:
    array = np.empty((), dtype=object)
    array[()] = bytearray(BIG)
    return array


def _turned() -> Any:
    array = np.empty((2, 3, 4), dtype=object).transpose(1, 0, 2).copy(order="K")
    array[2, 1, 3] = bytearray(BIG)
    return array


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_among_the_items_are_kept(engine: str, name: str) -> None:
    array = OBJECTS[name]()
    assert BIG < retained(seen(engine, array), array) < BIG + 2 * KB


def test_objects_left_out_by_a_slice_are_kept_by_its_base_alone(engine: str) -> None:
    array = np.array([bytearray(BIG), None], dtype=object)
    copied = array[1:].copy()
    assert retained(seen(engine, copied), copied) < KB


class TestRecords:
    """Items of structured arrays."""

    KIND = (("a", "f8", (100,)), ("b", "i4"))

    def test_a_record_keeps_the_array_that_it_was_taken_from(self, engine: str) -> None:
        record = np.zeros(100, dtype=list(self.KIND))[3]
        assert payload(engine, record) == {"host": 100 * 804}

    def test_many_records_of_one_array_keep_it_once(self, engine: str) -> None:
        array = np.zeros(100, dtype=list(self.KIND))
        assert payload(engine, [array[i] for i in range(50)]) == {"host": 100 * 804}

    def test_a_record_of_its_own_weighs_what_getsizeof_says(self, engine: str) -> None:
        record = np.void(bytes(800))
        assert weight(engine, record) == sys.getsizeof(record)


def test_no_code_of_a_subclass_runs(engine: str) -> None:
    calls = []

    class Hostile(np.ndarray[Any, Any]):
        def __array_finalize__(self, other: object) -> None:
            calls.append("made")

        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return super().__getattribute__(name)

    arrays = [np.zeros((3, 3)).view(Hostile), np.array([print, None]).view(Hostile)]
    calls.clear()
    seen(engine, arrays)
    assert not calls
