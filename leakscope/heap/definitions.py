"""Where the user's functions and classes are defined: owners for the paths.

Answers are remembered as names and line numbers only.
"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

from leakscope.heap import anatomy
from leakscope.heap.ownership import Ownership, module_of
from leakscope.model.census import Owner
from leakscope.model.interrupts import ours

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
        self._note(code.co_filename)
        return Owner(
            kind="function",
            name=name,
            file=code.co_filename,
            line=code.co_firstlineno,
            variable=variable,
            module=module,
        )

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
        self._note(inner.co_filename)
        return Owner(
            kind="function",
            name=name,
            file=inner.co_filename,
            line=line,
            variable=variable,
            module=module_of(function.__globals__),
        )

    def class_(self, cls: type, variable: str) -> Owner:
        """Return the owner of an attribute of a class or of its instances."""
        module = anatomy.module_name(cls)
        file = _file_of(cls, module)
        line = self._class_line(file, cls) if file else 0
        self._note(file)
        return Owner(
            kind="class",
            name=anatomy.qualname(cls),
            file=file,
            line=line,
            variable=variable,
            module=module,
        )

    def module(self, name: str, names: dict[str, Any], variable: str) -> Owner:
        """Return the owner of a global."""
        file = names.get("__file__")
        path = file if type(file) is str else ""
        self._note(path)
        return Owner(kind="module", name=name, file=path, variable=variable, module=name)

    def own_bytes(self) -> int:
        """Return an estimate of what is remembered: names and line numbers."""
        entries = len(self._names) + len(self._functions) + len(self._classes) + len(self.files)
        return 300 * entries

    def _note(self, file: str) -> None:
        if file and not file.startswith("<") and self._ownership.owns_file(file):
            self.files.add(file)

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
            if (
                names.get("__file__") in (code.co_filename, None)
                or names.get("__name__") == "__main__"
            ):
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
            for other in _functions(function.__globals__):
                self._learn(other.__code__, other.__qualname__)

    def _class_line(self, file: str, cls: type) -> int:
        where = (file, anatomy.qualname(cls))
        if where not in self._classes:
            self._classes[where] = _class_line(file, cls)
        return self._classes[where]


def _key(code: types.CodeType) -> _CodeKey:
    return (code.co_filename, code.co_firstlineno, code.co_name)


def _functions(names: dict[str, Any]) -> list[types.FunctionType]:
    """Return the functions and methods that a module defines, also under decorators."""
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


def _class_line(file: str, cls: type) -> int:
    """Return the line of the ``class`` statement: the last one before the first method."""
    known = anatomy.class_dict(cls).get("__firstlineno__")
    if type(known) is int:
        return known
    try:
        if not Path(file).is_file():  # a pipe, which would wait for whoever writes into it
            return 0
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except ours(OSError):
        return 0
    statement = re.compile(rf"\s*class\s+{re.escape(anatomy.qualname(cls).rpartition('.')[2])}\b")
    found = [number for number, line in enumerate(lines, 1) if statement.match(line)]
    codes = [f.__code__ for _, m in anatomy.class_items(cls) if (f := _plain(m))]
    methods = [code.co_firstlineno for code in codes if code.co_filename == file]
    before = [line for line in found if line <= min(methods, default=len(lines) + 1)]
    return before[-1] if before and methods else (found[0] if found else 0)
