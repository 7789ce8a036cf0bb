"""What is the user's own code, as against the standard library, installed packages and leakscope.

The user's code is what lies under the project's root and was not installed there, and whatever runs
as ``__main__``, also from ``-c``, a notebook or standard input.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import sysconfig
import types
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from leakscope.heap import anatomy
from leakscope.model.interrupts import ours, real_path
from leakscope.model.notebook import cells_of_shell

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_NAME = __name__.partition(".")[0]
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class Ownership:
    """Tells the user's files, code, modules and classes from everybody else's.

    Answers are remembered by name, never by object, so nothing of the user's is kept alive.
    """

    def __init__(self, project_root: str) -> None:
        self.root = os.path.realpath(project_root)
        self._files: dict[str, bool] = {}
        self._folders: dict[str, str] = {}
        self._user: list[str] = []
        self._own: list[str] = []
        self._scanned = 0
        self._last = ""
        self._library = tuple(
            os.path.realpath(path) + os.sep
            for name, path in sysconfig.get_paths().items()
            if name in {"stdlib", "platstdlib", "purelib", "platlib"}
        )

    def owns_file(self, path: str) -> bool:
        """Say whether a source file is the user's."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self._is_user_file(path)
        return known

    def owns_code(self, code: types.CodeType, names: dict[str, Any]) -> bool:
        """Say whether code that runs with the globals ``names`` is the user's."""
        if is_own_file(code.co_filename):
            return False
        if self.owns_file(code.co_filename):
            return True
        if names.get("__name__") != "__main__" or is_own_main(names):
            return False
        script = names.get("__file__")  # a notebook has none, and keeps every cell in a file
        return script in (None, code.co_filename) or code.co_filename.startswith("<")

    def owns_function(self, function: types.FunctionType) -> bool:
        """Say whether a function was written by the user."""
        return self.owns_code(function.__code__, function.__globals__)

    def owns_module(self, name: str, names: dict[str, Any]) -> bool:
        """Say whether the module called ``name`` with the globals ``names`` is the user's."""
        if name == "__main__":
            return not is_own_main(names)
        path = names.get("__file__")
        return type(path) is str and self.owns_file(path)

    def owns_class(self, cls: type) -> bool:
        """Say whether a class was defined in the user's code."""
        module = sys.modules.get(anatomy.module_name(cls))
        if module is not None:
            if not anatomy.is_instance(module, types.ModuleType):
                return False
            return self.owns_module(anatomy.module_name(cls), anatomy.module_dict(module))
        methods = [m for _, m in anatomy.class_items(cls) if type(m) is types.FunctionType]
        return any(self.owns_function(method) for method in methods)

    def user_modules(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the user's modules by name with their globals, ``__main__`` first."""
        found: dict[int, tuple[str, dict[str, Any]]] = {}
        self._look_at_new()
        for name, module in _still_imported(self._user):
            if name == "__main__" and not self.owns_module(name, anatomy.module_dict(module)):
                continue
            names = anatomy.module_dict(module)
            if name == "__main__" or id(names) not in found:
                found[id(names)] = (name, names)
        return sorted(found.values(), key=lambda entry: (entry[0] != "__main__", entry[0]))

    def own_modules(self) -> list[types.ModuleType]:
        """Return the modules of leakscope itself."""
        self._look_at_new()
        return [module for _, module in _still_imported(self._own)]

    def _look_at_new(self) -> None:
        """Judge the modules imported since the last time, by name.

        There are thousands, and in a forked process a mere look at one copies its page.
        """
        count = len(sys.modules)
        new = count - self._scanned
        is_changed = new < 0 or next(islice(reversed(sys.modules), new, None), "") != self._last
        if is_changed:
            new = count
        if not new:
            return
        own, user = ([], []) if is_changed else (list(self._own), list(self._user))
        latest = list(islice(reversed(sys.modules.items()), new))[::-1]
        for name, module in latest:
            if type(name) is not str or not anatomy.is_instance(module, types.ModuleType):
                continue
            if name == _NAME or name.startswith(f"{_NAME}."):
                own.append(name)
            if name == "__main__" or self.owns_module(name, anatomy.module_dict(module)):
                user.append(name)
        # All at once: an interrupt would leave modules that are never looked at again.
        self._scanned, self._last = count, latest[-1][0]
        self._own, self._user = own, user

    def _is_user_file(self, path: str) -> bool:
        if path in cells_of_shell():
            return True
        if path.startswith(("<", *self._library)):
            return False
        real = self._real_path(path)
        if is_own_file(real) or real.startswith(self._library):
            return False
        if not _INSTALLED.isdisjoint(Path(real).parts):
            return False
        return real == self.root or real.startswith(self.root.rstrip(os.sep) + os.sep)

    def _real_path(self, path: str) -> str:
        """Return :func:`real_path`, asking once for each folder: thousands of files share a few."""
        folder, name = os.path.split(path)
        if not os.path.isabs(path) or name in {"", os.curdir, os.pardir}:  # noqa: PTH117
            return real_path(path)
        real_folder = self._folders.get(folder)
        if real_folder is None:
            real_folder = self._folders[folder] = real_path(folder)
        real = os.path.join(real_folder, name)  # noqa: PTH118
        try:
            is_link = stat.S_ISLNK(os.lstat(real).st_mode)
        except ours(OSError):
            is_link = False  # no such file, so no link
        return real_path(path) if is_link else real


@functools.lru_cache(maxsize=4)
def ownership_under(project_root: str) -> Ownership:
    """Return what tells the user's code under a root; what it learns a forked process inherits."""
    return Ownership(project_root)


def is_own_file(path: str) -> bool:
    """Say whether a source file is part of leakscope."""
    return path.startswith(_PACKAGE + os.sep)


def is_own_main(names: dict[str, Any]) -> bool:
    """Say whether ``__main__`` is leakscope itself and not a program of the user's."""
    path = names.get("__file__")
    return type(path) is str and is_own_file(path)


def all_modules(names: Sequence[str] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return every imported module by name with its globals, or those of some names."""
    modules = list(sys.modules.items())
    if names is not None:
        modules = [(name, sys.modules[name]) for name in names if name in sys.modules]
    return [
        (name, anatomy.module_dict(module))
        for name, module in modules
        if type(name) is str and anatomy.is_instance(module, types.ModuleType)
    ]


def module_of(names: dict[str, Any]) -> str:
    """Return the name under which code with the globals ``names`` was imported."""
    name = names.get("__name__")
    return name if type(name) is str else ""


def _still_imported(names: list[str]) -> list[tuple[str, types.ModuleType]]:
    modules = ((name, sys.modules.get(name)) for name in names)
    return [
        (name, module)
        for name, module in modules
        if module is not None and anatomy.is_instance(module, types.ModuleType)
    ]
