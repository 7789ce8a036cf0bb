"""Methods of libraries wrapped for a while, hooks that torch.compile passes over, and the moment
at which a library is imported.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from leakscope.model.errors import ours

F = TypeVar("F", bound=Callable[..., Any])
Method = Callable[..., Any]


class PatchedMethod:
    """A method of a class, or a function of a module, that is replaced until :meth:`remove`."""

    def __init__(
        self, owner: type | ModuleType, name: str, wrap: Callable[[Method], Method]
    ) -> None:
        self._owner = owner
        self._name = name
        self._original = owner.__dict__[name]
        self._ours = wrap(self._original)
        setattr(owner, name, self._ours)

    def remove(self) -> None:
        """Put the original back, unless somebody has wrapped ours since: ours only passes on."""
        if self._owner.__dict__.get(self._name) is self._ours:
            setattr(self._owner, self._name, self._original)


class HookSource:
    """A part of a library that reports boundaries while methods of it are wrapped."""

    module: str
    """The module that has to be there first."""
    _patches: tuple[PatchedMethod, ...] = ()

    def install(self, module: ModuleType) -> None:
        """Begin to listen."""

    def uninstall(self) -> None:
        """Leave the library as it was found."""
        for patch in self._patches:
            patch.remove()
        self._patches = ()


def without_our_frame(error: BaseException) -> None:
    """Take the frame of the wrapper, the outermost one, off a traceback before it goes on."""
    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        error.__traceback__ = error.__traceback__.tb_next


def surrounded(
    original: Method, begin: Method, end: Callable[[Any, BaseException | None], object]
) -> Method:
    """Return a function that first calls ``begin`` as it is called itself, then the original, and
    ``end`` at last, with what ``begin`` returned and what the original raised, if it did.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        begun = begin(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            end(begun, error)
            del args, kwargs, begun  # whoever clears the traceback's frames doesn't find ours
            raise
        end(begun, None)
        return result

    return call


def opaque(hook: F) -> F:
    """Return a hook that ``torch.compile`` calls as it is instead of looking into it."""
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return passed_over(hook)


def passed_over(function: F) -> F:
    """Return a function whose own frame ``torch.compile`` never compiles, but what that calls.

    Compiled, it would have entries in dynamo's cache, and one limit for all that it is called with.
    """
    try:
        dynamo: Any = sys.modules["torch._C"]._dynamo.eval_frame
        code = function.__code__
        if not hasattr(dynamo, "set_code_exec_strategy"):  # before torch 2.7
            dynamo.skip_code(code)
            return function
        skip, go_on = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(skip, go_on))
    except ours(AttributeError, KeyError, TypeError):
        return function  # another version of torch, or the library is another one
    return function


T = TypeVar("T")


def compiler_callback(module: ModuleType) -> Callable[[], object]:
    """Return what tells whether torch would compile the Python functions called just now."""
    try:
        callback: Callable[[], object] = module.torch._C._dynamo.eval_frame.get_eval_frame_callback
        callback()
    except (AttributeError, TypeError):
        return lambda: None
    return callback


def compiles() -> bool:
    """Return whether the program has made torch compile anything."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None) or {}
    return any(backend is not None for backend in list(backends.values()))  # None: to disable it


def uncompiled(function: Callable[[T], object], argument: T) -> None:
    """Call a function so that torch compiles neither it nor what it calls."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.disable(function)(argument)


Arrival = Callable[[ModuleType], None]


class ImportWatch:
    """A finder that finds nothing itself: it has the found module tell when it has been run."""

    def __init__(self, arrivals: dict[str, Arrival]) -> None:
        self._arrivals = dict(arrivals)

    def start(self) -> None:
        """Call for each module that is there; watch for the others."""
        for name in list(self._arrivals):
            module = sys.modules.get(name)
            if module is not None and not is_being_imported(module):
                self._arrivals.pop(name)(module)
        if self._arrivals:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Watch no more."""
        self._arrivals.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def arrived(self, name: str) -> Arrival | None:
        """Note that a module is there; the last one ends the watch."""
        arrival = self._arrivals.pop(name, None)
        if not self._arrivals:
            self.stop()
        return arrival

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders give, its loader wrapped; None for other names."""
        if name not in self._arrivals:
            return None
        finders = list(sys.meta_path)
        # Those before it have been tried; two watches would call each other for ever.
        for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _NotifyingLoader(spec.loader, self)
                return spec
        return None


class _NotifyingLoader(Loader):
    """Loads as the real loader does and leaves no trace in the module."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            without_our_frame(error)
            raise
        arrival = self._watch.arrived(module.__name__)
        if arrival is None:
            return
        try:
            arrival(module)
        except ours(Exception):
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def is_being_imported(module: ModuleType) -> bool:
    """Return whether a module is known already, and has not been run to its end."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class LatePatches:
    """Patches of modules: of each at once where it is imported, else when it will be."""

    def __init__(
        self, modules: Iterable[str], make: Callable[[ModuleType], Iterable[PatchedMethod]]
    ) -> None:
        self._make = make
        self._patches: list[PatchedMethod] = []
        self._watch = ImportWatch(dict.fromkeys(modules, self._arrived))

    def install(self) -> None:
        """Patch from now on."""
        self._watch.start()

    def remove(self) -> None:
        """Leave the modules as they were found."""
        self._watch.stop()
        for patch in self._patches:
            patch.remove()
        self._patches.clear()

    def _arrived(self, module: ModuleType) -> None:
        self._patches.extend(self._make(module))


class LibraryPatches:
    """Wraps those methods that a class has for the first callback, and puts them back after the
    last one.
    """

    def __init__(self, owner: type, **wraps: Callable[[Method], Method]) -> None:
        self._owner, self._wraps = owner, wraps
        self._served = 0
        self._patches: list[PatchedMethod] = []

    def serve(self, callback: object) -> None:
        """Wrap the methods until this callback is collected."""
        if not self._patches:
            known = [item for item in self._wraps.items() if item[0] in vars(self._owner)]
            self._patches = [PatchedMethod(self._owner, name, wrap) for name, wrap in known]
        self._served += 1
        weakref.finalize(callback, self._gone).atexit = False

    def _gone(self) -> None:
        self._served -= 1
        if not self._served:
            for patch in self._patches:
                patch.remove()
            self._patches = []
