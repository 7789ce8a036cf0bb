"""What is run as another variant is the same program, and what came out differently is reported."""

from __future__ import annotations

import pytest
from corpus import cases
from robustness import LENGTHS, Ran, Robustness, rows, totals
from variants import VARIANTS, Variant, rewritten, seeds
from zoo_page import render_robustness

PROGRAM = """
EPOCHS, SIZE = 3, 64
torch.manual_seed(0); random = np.random.default_rng(7)
generator = torch.Generator().manual_seed(index)
"""


def test_seed_and_length_change_and_nothing_else() -> None:
    text = rewritten(PROGRAM, Variant(seed=4, length=2), "EPOCHS, SIZE = 3")
    assert text.splitlines() == [
        "",
        "EPOCHS, SIZE = 6, 64",
        "torch.manual_seed(4); random = np.random.default_rng(11)",
        "generator = torch.Generator().manual_seed(index)",
    ]


def test_half_of_little_is_still_something() -> None:
    assert "range(1)" in rewritten("for step in range(1): pass", Variant(length=0.5), "range(1)")


def test_a_length_that_does_not_stand_there_once_is_refused() -> None:
    with pytest.raises(ValueError, match="once"):
        rewritten("a = 1; a = 1", Variant(), "a = 1")


@pytest.mark.parametrize("name", LENGTHS)
def test_every_program_can_be_varied_line_for_line(name: str) -> None:
    text = next(case.program.read_text() for case in cases() if case.name == name)
    assert rewritten(text, Variant(), LENGTHS[name]) == text
    for variant in (Variant(seed=1), Variant(length=2)):
        other = rewritten(text, variant, LENGTHS[name])
        changed = [
            item
            for item, two in zip(text.split("\n"), other.split("\n"), strict=True)
            if item != two
        ]
        assert bool(changed) == bool(variant.length != 1 or seeds(text))


def test_variants_have_names_of_their_own() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


def ran(variant: str, verdict: str = "leak", first: str = "kept", right: bool = True) -> Ran:
    return Ran(variant, verdict, first, right)


def test_another_verdict_and_another_culprit_are_changes() -> None:
    single = Robustness(
        "keeps",
        leaking=True,
        runs=(
            ran("as it stands"),
            ran("seed 1"),
            ran("seed 2", first="other", right=False),
            ran("length × 2", verdict="clean", first="", right=False),
        ),
    )
    assert [run.variant for run in single.changed] == ["seed 2", "length × 2"]
    assert single.wrong == single.changed


def test_a_run_that_says_that_it_cannot_tell_is_no_change() -> None:
    unsure = ran("length × 0.5", verdict="inconclusive", first="", right=False)
    single = Robustness("keeps", leaking=True, runs=(unsure, ran("as it stands"), ran("seed 1")))
    assert (single.undecided, single.changed, single.wrong) == ([unsure], [], [])


def test_a_run_without_a_report_is_a_change() -> None:
    broken = Ran("seed 1", "none", "", right=False, fault="exit code 1")
    single = Robustness("keeps", leaking=True, runs=(ran("as it stands"), broken))
    assert single.changed == [broken]


def test_table_and_page_tell_what_changed() -> None:
    other = ran("seed 2", first="<other>", right=False)
    every = [Robustness("keeps", leaking=True, runs=(ran("as it stands"), other))]
    assert "seed 2" in "\n".join(rows(every[0]))
    page = render_robustness(every, totals(every))
    assert "&lt;other&gt;" in page and "1 changed" in page
