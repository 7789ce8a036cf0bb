"""pyarrow's buffers, pandas' columns over them, Pillow's images."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from payloads import ENGINES, KB, payload, retained, seen


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestArrow:
    """Buffers behind arrays, columns and tables; each counts once."""

    @pytest.fixture
    def pa(self) -> Any:
        return pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    WAYS: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012
        "array": lambda pa: pa.array(range(10 * KB)),
        "buffer": lambda pa: pa.array(range(10 * KB)).buffers()[1],
        "slice": lambda pa: pa.array(range(10 * KB))[KB:],
        "chunks": lambda pa: pa.chunked_array([range(5 * KB), range(5 * KB)]),
        "table": lambda pa: pa.table({"a": range(10 * KB)}),
        "batch": lambda pa: pa.record_batch({"a": range(10 * KB)}),
        "batches": lambda pa: pa.table({"a": range(10 * KB)}).to_batches(max_chunksize=100),
        "table and its parts": lambda pa: (t := pa.table({"a": range(10 * KB)}), t["a"], t[KB:]),
        "structure": lambda pa: pa.StructArray.from_arrays([pa.array(range(10 * KB))], ["a"]),
        "memoryview": lambda pa: memoryview(pa.array(range(10 * KB)).buffers()[1]),
        "numpy": lambda pa: pa.array(range(10 * KB)).to_numpy(),
    }

    @pytest.mark.parametrize("way", WAYS)
    def test_buffers_count_once(self, engine: str, pa: Any, way: str) -> None:
        value = self.WAYS[way](pa)
        assert payload(engine, [value]) == {"host": 80 * KB}

    def test_two_tables_count_twice(self, engine: str, pa: Any) -> None:
        tables = [pa.table({"a": range(10 * KB)}) for _ in range(2)]
        assert payload(engine, tables) == {"host": 160 * KB}

    def test_codes_and_their_dictionary(self, engine: str, pa: Any) -> None:
        array = pa.array(["x" * KB, "y" * KB] * 50).dictionary_encode()
        assert 2 * KB + 100 * 4 <= payload(engine, array)["host"] < 3 * KB

    def test_memory_of_an_array_is_the_arrays(self, engine: str, pa: Any) -> None:
        array = np.zeros(10 * KB)
        assert payload(engine, [pa.array(array), array]) == {"host": 80 * KB}

    def test_memory_of_bytes_is_theirs(self, engine: str, pa: Any) -> None:
        text = bytes(80 * KB)
        holder = [pa.py_buffer(text), text]
        assert 80 * KB < retained(seen(engine, holder), holder) < 81 * KB

    def test_no_code_of_a_type_of_the_users_runs(self, engine: str, pa: Any) -> None:
        class Named(pa.ExtensionType):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(pa.int64(), "named")

            def __arrow_ext_serialize__(self) -> bytes:
                return b""

            @classmethod
            def __arrow_ext_deserialize__(cls, *_: Any) -> Any:
                raise AssertionError("made anew")

            def __arrow_ext_class__(self) -> Any:
                if requested:
                    raise AssertionError("asked for its class")
                return pa.ExtensionArray

        requested: list[int] = []
        array = pa.ExtensionArray.from_storage(Named(), pa.array(range(10 * KB)))
        holders = [pa.chunked_array([array]), pa.record_batch([array], ["a"])]
        requested.append(1)
        assert payload(engine, holders) == {}
        assert payload(engine, array) == {"host": 80 * KB}


class TestPandas:
    """Frames over NumPy's and over Arrow's memory."""

    @pytest.fixture
    def pd(self) -> Any:
        return pytest.importorskip("pandas", reason="pandas is not installed")

    def test_a_frame_has_its_blocks(self, engine: str, pd: Any) -> None:
        frame = pd.DataFrame({"a": np.zeros(5 * KB), "b": np.arange(5 * KB)})
        assert payload(engine, frame)["host"] == pytest.approx(80 * KB, rel=0.01)

    def test_columns_share_the_frames_memory(self, engine: str, pd: Any) -> None:
        frame = pd.DataFrame(np.zeros((KB, 10)))
        columns = [frame[name] for name in frame]
        assert payload(engine, [frame, columns])["host"] == pytest.approx(80 * KB, rel=0.01)

    def test_a_frame_of_objects_keeps_them(self, engine: str, pd: Any) -> None:
        frame = pd.DataFrame({"a": [bytearray(80 * KB)]}, dtype=object)
        assert retained(seen(engine, frame), frame) > 80 * KB

    def test_texts_are_counted_whatever_backs_them(self, engine: str, pd: Any) -> None:
        series = pd.Series([f"{i}" + "x" * 8 * KB for i in range(10)])
        assert 80 * KB < retained(seen(engine, series), series) < 90 * KB

    def test_numbers_of_arrows(self, engine: str, pd: Any) -> None:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        series = pd.Series(range(10 * KB), dtype="int64[pyarrow]")
        assert payload(engine, series)["host"] == pytest.approx(80 * KB, rel=0.01)


class TestImages:
    """Pillow: pixels are there once an image was loaded."""

    @pytest.fixture
    def image(self) -> Any:
        return pytest.importorskip("PIL.Image", reason="Pillow is not installed")

    def encoded(self, image: Any) -> io.BytesIO:
        file = io.BytesIO()
        image.new("RGB", (200, 100)).save(file, "PNG")
        return io.BytesIO(file.getvalue())

    def test_one_that_is_not_loaded_yet_has_no_pixels(self, engine: str, image: Any) -> None:
        opened = image.open(self.encoded(image))
        assert payload(engine, opened) == {}
        opened.load()
        assert payload(engine, opened) == {"host": 4 * 200 * 100}

    def test_a_core_by_itself(self, engine: str, image: Any) -> None:
        assert payload(engine, [image.new("L", (200, 100)).im]) == {"host": 200 * 100}

    def test_a_closed_image_has_no_pixels(self, engine: str, image: Any) -> None:
        closed = image.new("RGB", (200, 100))
        closed.close()
        assert payload(engine, closed) == {}

    def test_an_array_of_its_pixels_is_a_copy(self, engine: str, image: Any) -> None:
        picture = image.new("RGB", (200, 100))
        holder = [picture, np.asarray(picture)]
        assert retained(seen(engine, holder), holder) > (4 + 3) * 200 * 100
