"""What ``leakscope doctor`` found, for a terminal and as JSON."""

from __future__ import annotations

from leakscope.model.health import Health, Item, State
from leakscope.model.printable import clipped
from leakscope.report.encoding import render_plain
from leakscope.report.paper import Paper

_MARKS = {
    State.OK: ("✓", "clean"),
    State.NOTE: ("·", "muted"),
    State.MISSING: ("–", "inconclusive"),
    State.BROKEN: ("✗", "leak"),
}
_COLUMN = 25
_SETTING, _VALUE = 18, 20


def render_health_json(health: Health) -> str:
    """Return what was found as JSON."""
    return render_plain(health)


def render_health_text(health: Health, *, width: int = 100, color: bool = False) -> str:
    """Return what is in force and from where, then what is there and what to do."""
    paper = Paper(width, color)
    lines = [f"leakscope {health.leakscope_version}", ""]
    where = health.project or "no pyproject.toml with [tool.leakscope]"
    lines.append(paper.clip(f"In force ({where}):"))
    for one in health.settings:
        value = clipped(_shown(one.value), _VALUE)
        lines.append(paper.clip(f"  {one.name:<{_SETTING}} {value:<{_VALUE}} {one.source}"))
    if health.suppressions:
        lines.append(f"  {'suppressions':<{_SETTING}} {health.suppressions}")
    lines += ["", "What is there:"]
    lines += [line for item in health.items for line in _item(item, paper)]
    return "\n".join(lines) + "\n"


def _shown(value: str | float | bool | list[str] | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str("–" if value is None else value)


def _item(item: Item, paper: Paper) -> list[str]:
    mark, style = _MARKS[item.state]
    first, *rest = paper.wrap(item.text or "–", " " * _COLUMN)
    name = clipped(item.name, _COLUMN - 5)
    head = f"  {paper.paint(mark, style)} {name:<{_COLUMN - 5}} "
    advice = paper.wrap(f"→ {item.advice}", " " * _COLUMN) if item.advice else []
    return [head + first[_COLUMN:], *rest, *advice]
