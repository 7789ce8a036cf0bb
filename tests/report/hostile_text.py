"""Reports in which every text from outside tries to break out of the page."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

import msgspec

ATTACKS = (
    "</script><img src=x onerror=alert(1)>",
    "</SCRIPT ><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "' autofocus onfocus='alert(4)",
    "{{ 7*7 }}{% raw %}",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "abc\u202egnp.exe\u2066\u2069",
    "half \ud83d pair \udc80",
    "line\u2028separator\u2029\r\n\tend\x00",
    "<!-- </style> ]]> &amp; -->",
    "`code` ``` **bold** [link](javascript:alert(5))",
    "$\\frac{1}{2}$ _{x} ^{y",
)
T = TypeVar("T", bound=msgspec.Struct)


def infested(value: T, attack: str) -> T:
    """Return a copy in which every text but our own enumerations carries the attack."""
    return _infest(value, attack)


def _infest(value: Any, attack: str) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return value + attack
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return type(value)(**{name: _infest(item, attack) for name, item in fields.items()})
    if isinstance(value, dict):
        return {_infest(key, attack): _infest(item, attack) for key, item in value.items()}
    if isinstance(value, list):
        return [_infest(item, attack) for item in value]
    return value
