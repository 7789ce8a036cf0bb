from __future__ import annotations

import pytest

from leakscope.model.text import human_bytes, human_count, human_share, plural
from leakscope.report.text import humane_share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KiB"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2.1 * 2**20, "2.1 MiB"),
        (123.4 * 2**20, "123 MiB"),
        (64 * 2**30, "64 GiB"),
        (-(40 * 2**10), "−40 KiB"),
        (-0.01, "0 B"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_bytes_read_as_a_person_would_write_them(value: float, text: str) -> None:
    assert human_bytes(value) == text


def test_every_size_keeps_at_most_three_digits_and_its_magnitude() -> None:
    units = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}
    for exponent in range(120):
        size = 1.37**exponent
        number, unit = human_bytes(size).split()
        assert len(number.replace(".", "")) <= 3
        assert float(number) * 1024 ** units[unit] == pytest.approx(size, rel=0.06, abs=1)


def test_counts_and_plurals() -> None:
    assert human_count(12345) == "12,345"
    assert human_count(2.5) == "2.5"
    assert plural(1, "epoch") == "1 epoch"
    assert plural(3, "epoch") == "3 epochs"
    assert plural(2, "batch") == "2 batches"
    assert plural(4, "boundary") == "4 boundaries"
    assert plural(2, "pass") == "2 passes"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.724, "72 %"), (0.004, "< 1 %"), (0.0, "0 %"), (1.0, "100 %"), (-0.003, "≈ 0 %"),
        (-0.5, "−50 %"), (-0.995, "< −99 %"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_shares_are_written_in_sentences_as_they_are_next_to_them(share: float, text: str) -> None:
    assert human_share(share) == text
    assert text == "unknown" or humane_share(share) == text
