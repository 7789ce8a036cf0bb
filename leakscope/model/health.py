"""What ``leakscope doctor`` tells: what is in force, what is there, and what to do."""

from __future__ import annotations

from enum import Enum

import msgspec

HEALTH_SCHEMA_VERSION = 1


class State(str, Enum):
    """How something stands."""

    OK = "ok"
    NOTE = "note"
    """It works, and changes what is measured or what that costs."""
    MISSING = "missing"
    """It isn't there, and something is measured less well or not at all."""
    BROKEN = "broken"
    """It ought to work and doesn't."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What to do about it; empty where nothing is to be done."""


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, its value and where that was chosen."""

    name: str
    variable: str
    value: str | float | bool | list[str] | None
    """None where nothing is chosen and there is no default."""
    source: str
    """``default``, an environment variable, or the path of a ``pyproject.toml``."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was looked at."""

    schema_version: int = HEALTH_SCHEMA_VERSION
    leakscope_version: str
    project: str
    """The ``pyproject.toml`` that has ``[tool.leakscope]``; empty without one."""
    settings: list[InForce]
    suppressions: int
    items: list[Item]

    @property
    def is_broken(self) -> bool:
        """Whether anything is broken."""
        return any(item.state is State.BROKEN for item in self.items)
