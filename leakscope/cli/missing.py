"""Whether ``-m`` names a module that Python will not find, asked without running any of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

_FINDS_OTHERWISE = (b"__path__", b"meta_path", b"path_hooks", b"sys.modules")
"""What a package speaks of that has modules elsewhere than in its folder."""


def is_missing_module(module: str) -> bool:
    """Return whether Python will not find a module, or a package's ``__main__``.

    Where a package may look for its modules in a way of its own, only running it would tell: such
    modules are taken for found.
    """
    before = [*sys.path]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _is_missing(module)
    except Exception:
        # Finders are anybody's; Python will say itself what is wrong.
        return False
    finally:
        sys.path[:] = before


def _is_missing(module: str) -> bool:
    top, *below = module.split(".")
    name, spec = top, find_spec(top)
    for part in below:
        if spec is None or _may_find_otherwise(spec):
            break
        name = f"{name}.{part}"
        spec = _below(name, spec)
    if spec is None:
        return True
    if spec.submodule_search_locations is None or _may_find_otherwise(spec):
        return False
    return _below(f"{name}.__main__", spec) is None


def _below(name: str, package: ModuleSpec) -> ModuleSpec | None:
    """Return the spec of a module of a package, as the import system finds it."""
    places: Sequence[str] | None = package.submodule_search_locations
    if places is None:
        return None
    found = (finder.find_spec(name, places) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _may_find_otherwise(package: ModuleSpec) -> bool:
    """Return whether nobody but the package, once it runs, knows where its modules lie."""
    if package.loader is None:  # a namespace package has no code
        return False
    if package.origin is None or not package.origin.endswith(".py"):
        return package.submodule_search_locations is not None or package.origin is None
    source = Path(package.origin).read_bytes()
    return any(word in source for word in _FINDS_OTHERWISE)
