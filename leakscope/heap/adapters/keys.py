"""Texts that are keys of a dict: while all keys are texts, dict's traversal leaves them out.

Source: CPython's Objects/dictobject.c, ``dict_traverse``.
"""

from __future__ import annotations

import sys
from typing import Any


def lone_texts(mapping: Any) -> list[object]:
    """Return the texts that nothing but a key of this dict refers to.

    Other texts are names of attributes, or held and counted elsewhere.
    """
    keys = list(dict.keys(mapping))
    return [
        key
        for key, count in zip(keys, _reference_counts(keys), strict=True)
        if type(key) is str and count == _LONE
    ]


def _reference_counts(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def _count_of_a_lone_key() -> int:
    mapping = {f"{__name__}:{id(object())}": None}
    return _reference_counts(list(mapping))[0]


_LONE = _count_of_a_lone_key()
