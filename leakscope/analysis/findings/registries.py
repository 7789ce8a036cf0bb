"""Registries of the interpreter whose entries only C code refers to, and the calls that fill them.

No walk finds a name for what they keep. What tells is the type of the objects and a call in the
program's sources that is run again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import places_that_call
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy

_CALLABLES = frozenset({"function", "method", "functools.partial"})


@dataclass(frozen=True)
class Registry:
    """What keeps all that it is given until the program ends."""

    owners: frozenset[str]
    """What stands before the function's name in a call; none for a method of any object."""
    function: str
    types: frozenset[str]
    """What a walk shows of it: the type of its entries, or of the container that has them."""
    title: str
    keeps: str
    """Begins the sentence that goes on with what is kept: ``atexit.register``."""
    remedy: Remedy


REGISTRIES = (
    Registry(
        frozenset({"atexit"}),
        "register",
        _CALLABLES | {"tuple", "dict"},
        "Calls pile up that are to be made when the program ends",
        "What atexit.register is given at {place} stays until the program ends",
        Remedy(
            title="Register one function before the loop, or give it nothing large",
            text=(
                "atexit keeps each function that it is given, and its arguments, until it has "
                "called it. Register one that goes over what is to be done at the end, and hand it "
                "names or paths instead of the objects; atexit.unregister(function) takes back all "
                "calls of a function."
            ),
        ),
    ),
    Registry(
        frozenset({"sys"}),
        "addaudithook",
        _CALLABLES,
        "Audit hooks pile up",
        "What sys.addaudithook is given at {place} stays until the program ends",
        Remedy(
            title="Add one audit hook before the loop",
            text=(
                "An audit hook can't be removed: it is called at each event, and kept with all "
                "that it refers to, until the program ends. Add one, and change what it reads."
            ),
        ),
    ),
    Registry(
        frozenset({"codecs"}),
        "register",
        _CALLABLES | {"list"},
        "Search functions of codecs pile up",
        "What codecs.register is given at {place} stays until it is taken back",
        Remedy(
            title="Register the search function once",
            text=(
                "Each search function is asked for every encoding that isn't known yet, and kept "
                "with all that it refers to. Register it before the loop; codecs.unregister("
                "function) takes it back."
            ),
        ),
    ),
    Registry(
        frozenset(),
        "set",
        frozenset({"_contextvars.Context", "Context"}),
        "Values of context variables pile up",
        "What is set at {place} stays in the context, under a variable that is made each time",
        Remedy(
            title="Make each ContextVar once, at the top of a module",
            text=(
                "A context keeps the value of every variable that was set in it, and the variable. "
                "One that is made in a loop or a function is never freed: make it once, and take "
                "back a value with reset(token)."
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Registration:
    """A registry that keeps what a row has, and where the program fills it."""

    registry: Registry
    places: list[str]

    @property
    def sentence(self) -> str:
        """What is kept, and until when."""
        return self.registry.keeps.format(place=self.places[0])


def find_registration(case: RunContext, row: CensusRow) -> Registration | None:
    """Return what is registered again and again and would keep what a row has, if it is known."""
    types = {row.type, row.path.rpartition("·")[2]}
    for registry in REGISTRIES:
        if types & registry.types:
            places = places_that_call(
                case.sources, set(registry.owners), {registry.function}, repeatedly=True
            )
            if places:
                return Registration(registry, places)
    return None
