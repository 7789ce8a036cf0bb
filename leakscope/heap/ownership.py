"""What is the user's own code, and where its functions and classes are defined.

The user's code is what lies under the project's root and was not installed there, and whatever runs
as ``__main__``, also from ``-c``, a notebook or standard input.

Answers are remembered as names and line numbers only.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
import sysconfig
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from leakscope.heap import anatomy
from leakscope.heap.anatomy import _native
from leakscope.model.census import Owner, cells_of_shell, is_installed
from leakscope.model.errors import ours, real_path

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_NAME = __name__.partition(".")[0]
_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+")
_MANY_NUMBERED = 3
"""Modules whose names differ in numbers alone, imported while the program is measured."""


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
        self._numbered: Counter[str] = Counter()
        self.folded = 0
        """How many names :meth:`spoken_module` gives to several modules each."""
        paths = sysconfig.get_paths()
        folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        # Unresolved too: in an environment behind a symbolic link, resolving the paths of thousands
        # of modules would take as long as a census.
        written = {*folders, *map(os.path.realpath, folders)}
        self._library = tuple(sorted(path + os.sep for path in written))

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
        cls = _as_written(cls)
        module = sys.modules.get(anatomy.module_name(cls))
        if module is not None:
            if not anatomy.is_instance(module, types.ModuleType):
                return False
            names = anatomy.module_dict(module)
            # What was pickled by value says that it is of the main module of where it came from.
            is_moved = anatomy.module_name(cls) == "__main__" and is_own_main(names)
            if not is_moved:
                return self.owns_module(anatomy.module_name(cls), names)
        methods = [m for _, m in anatomy.class_items(cls) if type(m) is types.FunctionType]
        return any(self.owns_function(method) for method in methods)

    def user_modules(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the user's modules by name with their globals, ``__main__`` first."""
        found: dict[int, tuple[str, dict[str, Any]]] = {}
        self._look_at_new()
        for name, module in _still_imported(self._user):
            names = anatomy.module_dict(module)
            if name == "__main__" and not self.owns_module(name, names):
                continue
            if name == "__main__" or id(names) not in found:
                found[id(names)] = (name, names)
        return sorted(found.values(), key=lambda entry: (entry[0] != "__main__", entry[0]))

    def spoken_module(self, name: str) -> str:
        """Return how a module is called: ``plugin_*`` of many that the program makes as it runs."""
        folded = _without_numbers(name)
        return folded if self._numbered[folded] >= _MANY_NUMBERED else name

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
        if self._scanned and not is_changed:
            folded = (_without_numbers(name) for name, _ in latest)
            self._numbered.update(name for name in folded if "*" in name)
            self.folded = sum(count >= _MANY_NUMBERED for count in self._numbered.values())
        # All at once: an interrupt would leave modules that are never looked at again.
        self._scanned, self._last = count, latest[-1][0]
        self._own, self._user = own, user

    def _is_user_file(self, path: str) -> bool:
        if path in cells_of_shell():
            return True
        if path.startswith(("<", *self._library)):
            return False
        try:
            real = self._real_path(path) if _native is None else _real_path(path)
        except ours(ValueError):  # no path: it has a null character, or none that can be encoded
            return False
        if is_own_file(real) or real.startswith(self._library):
            return False
        if is_installed(path) or is_installed(real):
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


def _real_path(path: str) -> str:
    """Return :func:`real_path` without letting go of the interpreter's lock."""
    real = _native.real_path(path)
    if real is not None:
        return real
    folder, name = os.path.split(path)
    if folder == path or path == os.curdir:
        return path
    real_folder = _real_path(folder or os.curdir)
    return os.path.join(real_folder, name) if name else real_folder  # noqa: PTH118


def _without_numbers(name: object) -> str:
    return _NUMBER.sub("*", name) if type(name) is str else ""


@functools.lru_cache(maxsize=4)
def ownership_under(project_root: str) -> Ownership:
    """Return what tells the user's code under a root; what it learns a forked process inherits."""
    return Ownership(project_root)


def _as_written(cls: type) -> type:
    """Return the class of an actor of Ray, which makes a subclass of it; any other as it is."""
    written = anatomy.class_dict(cls).get("__ray_actor_class__", cls)
    return written if isinstance(written, type) else cls


def is_own_file(path: str) -> bool:
    """Say whether a source file is part of leakscope."""
    return path.startswith(_PACKAGE + os.sep)


def is_own_main(names: dict[str, Any]) -> bool:
    """Say whether ``__main__`` is leakscope itself, or a library's that runs what it is sent, and
    not a program of the user's.
    """
    path = names.get("__file__")
    return type(path) is str and (is_own_file(path) or path.endswith(_MAINS_OF_LIBRARIES))


_MAINS_OF_LIBRARIES = ("ray/_private/workers/default_worker.py",)


def all_modules(names: Sequence[str] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return every imported module by name with its globals, or those of some names."""
    found = _still_imported(list(sys.modules) if names is None else names)
    return [(name, anatomy.module_dict(module)) for name, module in found]


def module_of(names: dict[str, Any]) -> str:
    """Return the name under which code with the globals ``names`` was imported."""
    name = names.get("__name__")
    return name if type(name) is str else ""


def _still_imported(names: Sequence[str]) -> list[tuple[str, types.ModuleType]]:
    modules: Iterator[tuple[str, Any]] = (
        (name, sys.modules.get(name)) for name in names if type(name) is str
    )
    return [each for each in modules if anatomy.is_instance(each[1], types.ModuleType)]


_CodeKey = tuple[str, int, str]


class Definitions:
    """Looks up owners: the function or class a name belongs to, with file and first line."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._names: dict[_CodeKey, str] = {}
        self._functions: dict[tuple[str, str], tuple[int, frozenset[str]]] = {}
        self._learned: set[str] = set()
        self._classes: dict[tuple[str, str], int] = {}
        self.files: set[str] = set()

    def qualname(self, code: types.CodeType, first_argument: object = None) -> str:
        """Return ``Trainer.validate`` for code; before 3.11 by looking for who owns the code."""
        exact = getattr(code, "co_qualname", None)
        if exact is not None:
            return str(exact)
        return self._qualname_without_help(code, first_argument)

    def function(self, code: types.CodeType, variable: str, module: str, name: str) -> Owner:
        """Return the owner of a local, a parameter or an attribute of a function."""
        line = code.co_firstlineno
        return self._owner("function", name, code.co_filename, line, variable, module)

    def enclosing(self, function: types.FunctionType, variable: str) -> Owner:
        """Return the function whose call made the closure cell ``variable`` of ``function``."""
        inner = function.__code__
        name, line = self.qualname(inner), inner.co_firstlineno
        self._learn_module(function)
        while ".<locals>." in name:
            name = name.rpartition(".<locals>.")[0]
            line, cells = self._functions.get((inner.co_filename, name), (line, frozenset()))
            if variable in cells:
                break
        module = module_of(function.__globals__)
        return self._owner("function", name, inner.co_filename, line, variable, module)

    def class_(self, cls: type, variable: str) -> Owner:
        """Return the owner of an attribute of a class or of its instances."""
        cls = _as_written(cls)
        module = anatomy.module_name(cls)
        file, name = _file_of(cls, module), anatomy.qualname(cls)
        if file and (file, name) not in self._classes:
            self._classes[file, name] = _class_line(file, cls)
        line = self._classes[file, name] if file else 0
        return self._owner("class", name, file, line, variable, module)

    def module(self, name: str, names: dict[str, Any], variable: str) -> Owner:
        """Return the owner of a global."""
        file = names.get("__file__")
        return self._owner("module", name, file if type(file) is str else "", 0, variable, name)

    def own_bytes(self) -> int:
        """Return an estimate of what is remembered: names and line numbers."""
        entries = len(self._names) + len(self._functions) + len(self._classes) + len(self.files)
        return 300 * entries

    def _owner(
        self, kind: str, name: str, file: str, line: int, variable: str, module: str
    ) -> Owner:
        if file and not file.startswith("<") and self._ownership.owns_file(file):
            self.files.add(file)
        return Owner(kind=kind, name=name, file=file, line=line, variable=variable, module=module)

    def _qualname_without_help(self, code: types.CodeType, first_argument: object) -> str:
        where = _key(code)
        if where not in self._names:
            self._index(code)
        known = self._names.get(where)
        if known is None:
            known = self._names[where] = _method_name(code, first_argument) or code.co_name
        return known

    def _index(self, code: types.CodeType) -> None:
        """Learn the names of all functions of the module that defines ``code``."""
        for _, names in self._ownership.user_modules():
            is_main = names.get("__name__") == "__main__"
            if is_main or names.get("__file__") in (code.co_filename, None):
                self._learn_functions(names)

    def _learn_functions(self, names: dict[str, Any]) -> None:
        for function in _functions(names):
            self._learn(function.__code__, function.__qualname__)

    def _learn(self, code: types.CodeType, name: str) -> None:
        self._names.setdefault(_key(code), name)
        known = (code.co_firstlineno, frozenset(code.co_cellvars))
        self._functions.setdefault((code.co_filename, name), known)
        for constant in code.co_consts:
            if type(constant) is types.CodeType:
                self._learn(constant, f"{name}.<locals>.{constant.co_name}")

    def _learn_module(self, function: types.FunctionType) -> None:
        if self.qualname(function.__code__) not in self._learned:
            self._learned.add(self.qualname(function.__code__))
            self._learn_functions(function.__globals__)


def _key(code: types.CodeType) -> _CodeKey:
    return (code.co_filename, code.co_firstlineno, code.co_name)


def _functions(names: dict[str, Any]) -> list[types.FunctionType]:
    found: list[types.FunctionType] = []
    module = names.get("__name__")
    for value in list(names.values()):
        if anatomy.is_instance(value, type) and anatomy.module_name(value) == module:
            found += [f for _, m in anatomy.class_items(value) if (f := _plain(m))]
        elif (function := _plain(value)) and function.__globals__ is names:
            found.append(function)
    return found


def _plain(value: Any) -> types.FunctionType | None:
    """Return the function under decorators that say what they wrap."""
    for _ in range(8):
        if type(value) is types.FunctionType:
            wrapped = value.__dict__.get("__wrapped__")
            if wrapped is None:
                return value
            value = wrapped
        elif type(value) is staticmethod or type(value) is classmethod:
            value = value.__func__
        elif type(value) is property:
            value = value.fget
        else:
            return None
    return None


def _method_name(code: types.CodeType, first_argument: object) -> str | None:
    is_class = anatomy.is_instance(first_argument, type)
    cls: Any = first_argument if is_class else type(first_argument)
    for base in anatomy.mro(cls):
        for _, value in anatomy.class_items(base):
            function = _plain(value)
            if function is not None and function.__code__ is code:
                return function.__qualname__
    return None


def _file_of(cls: type, module: str) -> str:
    for _, value in anatomy.class_items(cls):
        function = _plain(value)
        if function is not None and not function.__code__.co_filename.startswith("<"):
            return function.__code__.co_filename
    loaded = sys.modules.get(module)
    if anatomy.is_instance(loaded, types.ModuleType):
        file = anatomy.module_dict(loaded).get("__file__")  # type: ignore[arg-type]
        return file if type(file) is str else ""
    return ""


def _read(file: str) -> bytes:
    """Return a file's content, nothing where it can't be read, without letting go of the lock."""
    try:
        return (_read_file(file) if _native is None else _native.read_file(file)) or b""
    except ours(OSError, ValueError):
        return b""


def _read_file(file: str) -> bytes | None:
    is_file = Path(file).is_file()  # no pipe, which would wait for whoever writes into it
    return Path(file).read_bytes() if is_file else None


def _class_line(file: str, cls: type) -> int:
    """Return the line of the ``class`` statement: the last one before the first method."""
    known = anatomy.class_dict(cls).get("__firstlineno__")
    if type(known) is int:
        return known
    lines = _read(file).decode(errors="replace").splitlines()
    statement = re.compile(rf"\s*class\s+{re.escape(anatomy.qualname(cls).rpartition('.')[2])}\b")
    found = [number for number, line in enumerate(lines, 1) if statement.match(line)]
    codes = [f.__code__ for _, m in anatomy.class_items(cls) if (f := _plain(m))]
    methods = [code.co_firstlineno for code in codes if code.co_filename == file]
    before = [line for line in found if line <= min(methods, default=len(lines) + 1)]
    return before[-1] if before and methods else (found[0] if found else 0)
