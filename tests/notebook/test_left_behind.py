"""What cells leave behind, and from the third run of one a verdict per run."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_notebook import run_cells

from leakscope.notebook.magics import per_run

KIB, MIB = 1 << 10, 1 << 20
LEAKS = """%%leakscope --force --out leaky
models.append(np.ones(100_000))
scratch = np.zeros(50_000)
np.ones(60_000)"""
FINE = """%%leakscope --force --out fine
only = [np.ones(100_000)]
total = float(only[0][0])"""
FAILS = """%%leakscope --force --out failed
def fail():
    local = np.ones(300_000)
    raise ValueError
fail()"""


@pytest.mark.parametrize(
    ("sizes", "reported"),
    [
        ([1 * MIB, 2 * MIB], []),
        ([1 * MIB, 2 * MIB, 3 * MIB], ["✗ per run of this cell (3 runs): kept +1 MiB"]),
        ([1 * MIB] * 3, ["✓ per run of this cell (3 runs): nothing grows with each"]),
        (
            [0, 5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB],
            ["✓ per run of this cell (5 runs): nothing grows with each"],
        ),
        (
            [n * 4 * KIB for n in range(5)],
            ["✓ per run of this cell (5 runs): nothing grows with each"],
        ),
        (
            [0, 3 * MIB, 3 * MIB + 20 * KIB, 3 * MIB + 40 * KIB],  # after a first that fills
            ["✗ per run of this cell (4 runs): kept +20 KiB"],
        ),
    ],
)
def test_a_name_that_gains_as_much_with_each_run_grows(sizes, reported):
    assert per_run([{"kept": size} for size in sizes]) == reported


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plainly", "as-files"])
def test_cells_say_what_they_leave_behind(tmp_path: Path, how: str) -> None:
    if how == "as-files":
        pytest.importorskip("ipykernel")
    answers = run_cells(
        tmp_path,
        "%load_ext leakscope\nimport numpy as np\nmodels = []",
        *[LEAKS] * 3,
        *[FINE] * 3,
        FAILS,
        FINE,
        how=how,
    )
    lines = [answer["printed"].splitlines() for answer in answers]
    first, second, third = lines[1:4]
    assert "left behind: models +781 KiB, Out[2] +469 KiB, scratch +391 KiB" in first
    assert "left behind: models +781 KiB, Out[3] +469 KiB" in second
    assert "✗ per run of this cell (3 runs): models +781 KiB, Out +469 KiB" in third
    assert "left behind: only +781 KiB" in lines[4]
    assert not [line for line in lines[5] if line.startswith("left behind")]
    assert "✓ per run of this cell (3 runs): nothing grows with each" in lines[6]
    assert "since the last recorded cell: sys.last_traceback +2.3 MiB" in lines[8]
