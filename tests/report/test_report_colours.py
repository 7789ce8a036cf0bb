"""Lines in one chart can be distinguished, also by people who see fewer colours."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from rank_samples import rank, report_of

from leakscope.model.report import RankCourse
from leakscope.report import render_html
from leakscope.report.charts import series_dash, series_shade
from leakscope.report.html import TEMPLATES
from leakscope.report.timeline import MOST_CULPRITS

Colour = NDArray[np.float64]

SEEN = {
    "all colours": np.eye(3),
    "no red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
"""Linear light as people without one kind of cones see it (Machado, Oliveira, Fernandes 2009)."""
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""Oklab, in which distances are as large as they look (Ottosson 2020); 0.02 is just noticed."""
FAR_ENOUGH = 0.09
LINES = [f"series-{place}" for place in range(1, 7)]
SHEET = (TEMPLATES / "style" / "colours.css").read_text()


def light_of(name: str, theme: str) -> Colour:
    """Return a colour of the style sheet as linear light."""
    both = re.search(rf"--{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\)", SHEET)
    assert both is not None, name
    shown = both[1 if theme == "light" else 2]
    value = np.array([int(shown[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab_of(light: Colour) -> Colour:
    return np.asarray(TO_LAB @ np.cbrt(TO_CONES @ np.clip(light, 0, 1)))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_lines_of_a_chart_are_distinguished(seen: str, theme: str) -> None:
    labs = {name: lab_of(SEEN[seen] @ light_of(name, theme)) for name in LINES}
    apart = {(a, b): float(np.linalg.norm(labs[a] - labs[b])) for a, b in combinations(LINES, 2)}
    nearest = min(apart, key=apart.__getitem__)
    assert apart[nearest] > FAR_ENOUGH, (nearest, apart[nearest])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", LINES)
def test_a_line_stands_out_from_its_card(name: str, theme: str) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    dark, bright = sorted(float(weights @ light_of(n, theme)) for n in (name, "card"))
    assert (bright + 0.05) / (dark + 0.05) >= 3.0


@pytest.mark.parametrize("gauges", [1, 2, 7, 19])
def test_no_two_lines_share_both_colour_and_dash(gauges: int) -> None:
    drawn = [(series_shade(i), series_dash(i)) for i in range(gauges)]
    laid_over = range(gauges, gauges + MOST_CULPRITS)
    drawn += [(series_shade(i), series_dash(i, laid_over=True)) for i in laid_over]
    assert len({*drawn}) == len(drawn)
    assert not any(dash for _, dash in drawn[: min(gauges, 6)])
    assert all(dash for _, dash in drawn[gauges:])


def test_a_legend_shows_lines_as_they_are_drawn() -> None:
    courses = [RankCourse(label=f"rank {n}", points=[(0.0, 1e8), (9.0, 2e8)]) for n in range(8)]
    page = render_html(report_of([rank(n) for n in range(8)], rank_courses=courses))
    section = page[page.index('<section id="ranks"') :]
    keys = re.findall(r'<svg class="key stroke".*?var\(--([\w-]+)\).*?</svg>', section)
    assert keys[:8] == [*LINES, *LINES[:2]]
    dashes = re.findall(r'<path d="M0 2h24"(?: stroke-dasharray="([^"]+)")?/>', section)
    assert dashes[:8] == [""] * 6 + ["5 3"] * 2
    drawn = section[section.index('class="drawing chart"') : section.index("</svg></div>")]
    assert re.findall(r'stroke-dasharray="([^"]+)"', drawn) == ["5 3"] * 2


def test_both_runs_of_a_comparison_wear_colours_of_lines() -> None:
    assert "--before: var(--series-2)" in SHEET
    assert "--after: var(--series-3)" in SHEET
