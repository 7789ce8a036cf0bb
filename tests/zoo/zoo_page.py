"""The page that tells how each program of the zoo was judged."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from scoring import Score, Summary

from leakscope.report.trusted import stylesheet

HERE = Path(__file__).parent


def render(scores: list[Score], summary: Summary) -> str:
    """Return one page without a script; nothing on it loads from the network."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    groups = [
        ("Programs that leak", [one for one in scores if one.leaking]),
        ("Programs that don't", [one for one in scores if not one.leaking]),
    ]
    page = environment.get_template("zoo.html.j2")
    return page.render(style=stylesheet(), groups=groups, summary=summary) + "\n"
