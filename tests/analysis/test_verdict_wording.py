"""What a remedy says where others hold the same objects."""

from __future__ import annotations

import pytest

from leakscope.analysis.verdict.wording import listed, with_other_holders
from leakscope.model.report import Remedy

REMEDY = Remedy(title="Clear it", text="Clear it at the end of every epoch.")


def test_a_remedy_names_the_others_and_what_it_would_free_alone() -> None:
    text = with_other_holders(REMEDY, ["Logger.records"], 2048).text
    assert text == (
        "`Logger.records` holds the same objects: letting go of them here alone frees 2 KiB. "
        "Let go of them there too. Clear it at the end of every epoch."
    )


def test_a_remedy_for_what_nobody_else_holds_stays() -> None:
    assert with_other_holders(REMEDY, [], 2048) is REMEDY


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_names_are_listed_as_in_a_sentence(names: list[str], text: str) -> None:
    assert listed(names) == text
