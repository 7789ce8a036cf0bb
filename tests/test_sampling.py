"""What stands for the slow tests of its kind is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sampling import SLOW_SAMPLE, is_of_the_sample

TESTS = Path(__file__).parent


@pytest.mark.parametrize("file", SLOW_SAMPLE)
def test_what_the_sample_names_is_there_and_slow(file: str) -> None:
    source = (TESTS / file).read_text()
    assert "slow" in source
    for part in SLOW_SAMPLE[file]:
        for name in part.partition("[")[0].split("::"):
            assert re.search(rf"^ *(def|class) {name}\b", source, re.M), name


def test_a_part_stands_for_what_is_in_it_and_for_nothing_next_to_it() -> None:
    patterns = "end_to_end/test_patterns.py::test_leak_is_named_with_its_line_and_rate"
    assert is_of_the_sample(f"{patterns}[closure]")
    assert not is_of_the_sample(f"{patterns}[closures]")
    assert not is_of_the_sample(patterns)
    assert is_of_the_sample("frameworks/test_keras.py::TestPhasesAndSteps::test_it[1]")
    assert not is_of_the_sample("frameworks/test_keras.py::TestPhasesAndStepsToo::test_it")
    assert is_of_the_sample("docs/test_guide.py::test_whatever")
    assert not is_of_the_sample("docs/test_other.py::test_whatever")
