"""Buffers of the standard library: texts, numbers, ctypes, views of them."""

from __future__ import annotations

import array
import ctypes
import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from payloads import ENGINES, KB, payload, retained, seen

SIZE = 80 * KB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _c_array() -> Any:
    return (ctypes.c_double * (SIZE // 8))()


HOLDING: dict[str, Callable[[], Any]] = {
    "bytes": lambda: bytes(SIZE),
    "bytearray": lambda: bytearray(SIZE),
    "array": lambda: array.array("d", bytes(SIZE)),
    "BytesIO": lambda: io.BytesIO(bytes(SIZE)),
    "BytesIO's buffer": lambda: io.BytesIO(bytes(SIZE)).getbuffer(),
    "memoryview": lambda: memoryview(bytearray(SIZE))[5:10],
    "memoryview of an array": lambda: memoryview(np.zeros(SIZE // 8)),
    "StringIO": lambda: io.StringIO("x" * (SIZE // 4)),
    "ctypes array": _c_array,
    "ctypes text": lambda: ctypes.create_string_buffer(SIZE),
    "ctypes pointer": lambda: ctypes.pointer(_c_array()),
    "ctypes cast": lambda: ctypes.cast(_c_array(), ctypes.c_void_p),
    "ctypes over a buffer": lambda: (ctypes.c_char * SIZE).from_buffer(bytearray(SIZE)),
    "array over ctypes": lambda: np.ctypeslib.as_array(_c_array()),
}


@pytest.mark.parametrize("name", HOLDING)
def test_a_buffer_is_retained_once(engine: str, name: str) -> None:
    value = HOLDING[name]()
    holder = [value, value]
    assert SIZE <= retained(seen(engine, holder), holder) < SIZE + 6 * KB


@pytest.mark.parametrize("make", [_c_array, lambda: array.array("d", bytes(SIZE))])
def test_an_array_over_a_buffer_is_part_of_it(engine: str, make: Callable[[], Any]) -> None:
    torch = pytest.importorskip("torch")
    buffer = make()
    tensor = torch.frombuffer(buffer, dtype=torch.float64)
    holder = [np.frombuffer(buffer), tensor, buffer]
    assert SIZE <= retained(seen(engine, holder), holder) < SIZE + 8 * KB


def test_small_data_of_ctypes_lie_in_the_object(engine: str) -> None:
    number = ctypes.c_double(1.5)
    assert payload(engine, number) == {}
    places = 300 if sys.version_info >= (3, 14) else 0  # for attributes that it might get
    assert 0 <= retained(seen(engine, number), number) - sys.getsizeof(number) <= places


def test_a_structure_over_foreign_memory_owns_none(engine: str) -> None:
    owner = _c_array()
    view = type(owner).from_address(ctypes.addressof(owner))
    assert payload(engine, view) == {}


class TestTextBuffers:
    """``io.StringIO``: a log that is written in memory."""

    def test_one_that_is_only_written_weighs_its_text(self, engine: str) -> None:
        log = io.StringIO()
        for number in range(100):
            log.write(f"{number:800}")
        assert SIZE <= retained(seen(engine, log), log) < SIZE + 10 * KB

    def test_what_it_was_given_again_and_again_weighs_once(self, engine: str) -> None:
        log, line = io.StringIO(), "x" * SIZE
        for _ in range(5):
            log.write(line)
        gathers_objects = sys.version_info < (3, 12)
        times = 1 if gathers_objects else 5
        assert SIZE * times <= retained(seen(engine, log), log) < SIZE * times + 6 * KB

    @pytest.mark.parametrize("is_named", [True, False])
    def test_what_it_gathers_is_not_held_by_native_code(self, engine: str, is_named: bool) -> None:
        log = io.StringIO()
        for number in range(120_000):  # the first are joined, the last are not
            log.write(f"{engine} {is_named} {number:030}")
        nodes = seen(engine, *([log] if is_named else []), full=True).nodes
        gathered = [
            parent
            for obj, parent in zip(nodes.objects, nodes.parent, strict=True)
            if type(obj) is list and obj and str(obj[0]).startswith(f"{engine} {is_named} 0")
        ]
        gathers_objects = sys.version_info < (3, 12)
        assert len(gathered) == 2 * gathers_objects
        assert all(nodes.objects[parent] is log for parent in gathered if parent >= 0)
        assert all(parent >= 0 for parent in gathered)

    def test_one_that_was_sought_in_weighs_its_room(self, engine: str) -> None:
        log = io.StringIO("x" * KB)
        assert 4 * KB <= payload(engine, log)["host"] < 5 * KB

    def test_one_that_was_emptied_weighs_little(self, engine: str) -> None:
        log = io.StringIO("x" * SIZE)
        log.seek(0)
        log.truncate()
        assert payload(engine, log).get("host", 0) < KB

    def test_a_closed_one_weighs_little(self, engine: str) -> None:
        log = io.StringIO("x" * SIZE)
        log.close()
        assert payload(engine, log).get("host", 0) < KB
