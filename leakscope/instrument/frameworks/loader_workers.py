"""What a dataset keeps that doesn't go well with workers: open PIL images, open files.

A worker's copy of an image that was opened and never loaded decodes its pixels for itself and keeps
them; forked copies of an open file share one position. Looks at a bounded number of objects and
runs nothing of the user's.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any

from leakscope.instrument.auto.workers import start_method
from leakscope.model.sizes import plural

LOOKED_AT = 2000
ITEMS_LOOKED_AT = 32
DEEPEST = 8
"""So far inside a data set; one that wraps others is not counted. A picture in a message of a chat
lies seven deep: samples, sample, messages, message, content, part, picture."""
OPEN_IMAGES = "open PIL images"
LOADED_IMAGES = "PIL images"
OPEN_FILES = "open files"
GARBLED = "forked workers share one position in each file, which garbles what they read, and "
FILES = (io.BufferedReader, io.FileIO, io.TextIOWrapper, io.BufferedRandom)


@dataclass(frozen=True)
class Kept:
    """Something that a dataset keeps: ``images`` of a class ``Photos`` is ``Photos.images``."""

    name: str
    what: str
    is_in_file: bool = False
    """Whether an image reads from an open file, not from memory."""


def worker_warnings(loader: Any) -> list[str]:
    """Return a sentence for each thing that a loader's dataset should not keep with workers."""
    workers = getattr(loader, "num_workers", 0)
    dataset = getattr(loader, "dataset", None)
    if not workers or dataset is None:
        return []
    is_forked = start_method(loader) == "fork"
    kept = dict.fromkeys(find_kept(dataset))
    sentences = (_sentence(one, workers, is_forked=is_forked) for one in kept)
    return [sentence for sentence in sentences if sentence]


def _sentence(kept: Kept, workers: int, *, is_forked: bool) -> str:
    beside = f"{kept.name} keeps {kept.what} beside {plural(workers, 'DataLoader worker')}"
    if kept.what == OPEN_IMAGES:
        why = GARBLED if kept.is_in_file and is_forked else ""
        return (
            f"{beside}: {why}each worker decodes its own copy of the pixels and keeps them. Keep "
            "paths and open images in __getitem__, or call load() before the workers start."
        )
    if kept.what == LOADED_IMAGES:
        copies = f"{beside}: each worker that isn't forked gets a copy of all pixels. Keep paths."
        return "" if is_forked else copies
    if not is_forked:
        return ""
    return f"{beside}: forked workers share one position in each file. Open them in the workers."


def find_kept(dataset: object) -> Iterator[Kept]:
    """Yield what a dataset keeps of images and files; the same thing may come several times."""
    is_plain = type(dataset).__module__ == "builtins"
    waiting = deque([(dataset, "The data set" if is_plain else type(dataset).__name__, 0)])
    seen: set[int] = set()
    while waiting and len(seen) < LOOKED_AT:
        thing, name, depth = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        what = _what(thing)
        if what:
            yield Kept(name, what, is_in_file=what == OPEN_IMAGES and _reads_a_file(thing))
        elif depth < DEEPEST:
            deeper = 0 if _is_dataset(thing) else depth
            waiting.extend((inner, to, deeper + 1) for inner, to in _inside(thing, name))


def _what(thing: object) -> str:
    if any(kind.__module__ == "PIL.Image" for kind in type(thing).__mro__[:-1]):
        state = _state(thing)
        if "_im" not in state and "im" not in state:
            return ""
        is_loaded = (state.get("_im") or state.get("im")) is not None
        return LOADED_IMAGES if is_loaded else OPEN_IMAGES
    if type(thing) in FILES:
        return "" if thing.closed else OPEN_FILES  # type: ignore[attr-defined]
    return ""


def _reads_a_file(image: object) -> bool:
    return type(_state(image).get("fp")) in FILES


def _is_dataset(thing: object) -> bool:
    return any(
        kind.__name__ == "Dataset" and kind.__module__ == "torch.utils.data.dataset"
        for kind in type(thing).__mro__
    )


def _inside(thing: object, name: str) -> Iterator[tuple[object, str]]:
    # By the methods of the built-in types: those of a subclass would be the user's.
    kind = type(thing)
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        for item in base.__getitem__(thing, slice(ITEMS_LOOKED_AT)):
            yield item, name
    elif issubclass(kind, dict):
        values: Any = dict.values(thing)  # type: ignore[arg-type]
        for _, item in zip(range(ITEMS_LOOKED_AT), values, strict=False):
            yield item, name
    for attribute, value in list(_state(thing).items())[:ITEMS_LOOKED_AT]:
        if not isinstance(value, (int, str, float)):
            yield value, f"{kind.__name__}.{attribute}"


def _state(thing: object) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    try:
        state = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        state = {}
    return {**_slots(thing), **(state if type(state) is dict else {})}


def _slots(thing: object) -> dict[str, Any]:
    slots = {
        name: slot
        for kind in type(thing).__mro__
        if "__slots__" in vars(kind)
        for name, slot in vars(kind).items()
        if type(slot) is MemberDescriptorType
    }
    found = {}
    for name, slot in slots.items():
        with suppress(AttributeError):  # nothing was put into it
            found[name] = slot.__get__(thing)
    return found
