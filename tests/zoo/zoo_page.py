"""The pages that tell how the programs of the zoo were judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from scoring import Score, Summary

from leakscope.report.html import stylesheet

if TYPE_CHECKING:
    from robustness import Robustness, Totals

HERE = Path(__file__).parent


def render(scores: list[Score], summary: Summary) -> str:
    """Return one page without a script; nothing on it loads from the network."""
    groups = [
        ("Programs that leak", [score for score in scores if score.leaking]),
        ("Programs that don't", [score for score in scores if not score.leaking]),
    ]
    return filled("zoo.html.j2", groups=groups, summary=summary)


def render_robustness(every: list[Robustness], totals: Totals) -> str:
    """Return the page about one program in many variants."""
    return filled("robustness.html.j2", every=every, totals=totals)


def filled(template: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(style=stylesheet(), **values) + "\n"
