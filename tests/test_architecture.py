"""The rooms keep to their doors: who may import whom, and what importing leakscope costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parents[1] / "leakscope"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAY_IMPORT = {
    "model": set(),
    "heap": {"model"},
    "probes": {"model"},
    "recording": {"model"},
    "configuration": {"model"},
    "cleanup": {"model", "probes"},
    "capture": {"model", "heap", "probes", "recording", "cleanup", "configuration"},
    "analysis": {"model"},
    "report": {"model", "analysis"},
    "cli": {
        "model",
        "recording",
        "analysis",
        "report",
        "capture",
        "probes",
        "cleanup",
        "configuration",
    },
    "notebook": {
        "model",
        "heap",
        "recording",
        "analysis",
        "report",
        "capture",
        "configuration",
        "cli",
    },
    "testing": {"model", "heap", "analysis", "report"},
}
WITHOUT_TORCH = (
    "model",
    "recording",
    "cleanup",
    "analysis",
    "report",
    "cli",
    "configuration",
    "testing",
)


def room(module: Path) -> str:
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imported_names(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_rooms(module: Path) -> set[str]:
    ours = (name.split(".") for name in imported_names(module) if name.startswith("leakscope."))
    return {parts[1] for parts in ours if parts[1] in MAY_IMPORT}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_go_one_way(module: Path) -> None:
    own = room(module)
    if own in MAY_IMPORT:
        assert imported_rooms(module) - {own} <= MAY_IMPORT[own]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_reading_rooms_never_import_torch(module: Path) -> None:
    if room(module) in WITHOUT_TORCH:
        assert not {n for n in imported_names(module) if n.split(".")[0] == "torch"}


MOST_MODULES = {
    "": 7,
    "model": 18,
    "heap": 27,
    "probes": 12,
    "recording": 6,
    "configuration": 2,
    "cleanup": 7,
    "capture": 46,
    "analysis": 79,
    "report": 30,
    "cli": 15,
    "notebook": 2,
    "testing": 7,
}
"""A module is one idea that a newcomer would look for; a helper used once lives with its user."""


def test_no_room_falls_apart_into_fragments() -> None:
    counted = Counter(map(room, MODULES))
    assert counted.keys() == MOST_MODULES.keys()
    assert not {name for name, count in counted.items() if count > MOST_MODULES[name]}
    assert sum(MOST_MODULES.values()) <= 260


NO_WORDS = {
    "anew",
    "asked",
    "beside",
    "company",
    "lead",
    "met",
    "said",
    "stands",
    "stood",
    "told",
    "whose",
}
"""Words that say nothing of what a value is. A name with one of them among its words is refused."""
NO_NAMES = {"given", "held", "one"}
"""Names that say nothing alone; as a word of a longer one (``held_by``) they may."""


def identifiers(module: Path) -> set[str]:
    names = {module.stem}
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                names.add(name)
    return names


def is_refused(name: str) -> bool:
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return name.strip("_") in NO_NAMES or not NO_WORDS.isdisjoint(words)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_names_say_what_a_value_is(module: Path) -> None:
    assert not sorted(filter(is_refused, identifiers(module)))


@pytest.mark.parametrize("name", ["told", "_told", "was_told", "WasAsked", "one", "MOST_MET"])
def test_a_name_that_says_nothing_is_refused(name: str) -> None:
    assert is_refused(name)


@pytest.mark.parametrize("name", ["held_by", "one_line", "leading", "metric", "threshold"])
def test_a_name_with_more_to_it_is_not_refused(name: str) -> None:
    assert not is_refused(name)


def import_graph() -> dict[str, set[str]]:
    """Return which module imports which, deferred imports and those for types alone included."""
    extensions = {dotted(stub) for stub in PACKAGE.rglob("*.pyi")}
    known = {*map(dotted, MODULES), *extensions}
    return {
        dotted(path): {
            max(known & prefixes(target), key=len)
            for target in imported_targets(path)
            if known & prefixes(target)
        }
        - {dotted(path)}
        for path in MODULES
    }


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def imported_targets(module: Path) -> set[str]:
    targets: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            targets |= {f"{node.module}.{alias.name}" for alias in node.names}
    return targets


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph()
    cycles = [sorted(c) for c in nx.strongly_connected_components(nx.DiGraph(graph)) if len(c) > 1]
    assert not cycles


SHARED_CLASS_NAMES = {
    "LeakScopeCallback",  # of Keras and of transformers: each is the public name there
    "DeviceMemory",  # of a report, and what leakscope.cleanup tells of a device
    "OutOfMemory",  # of a report, and what leakscope.cleanup caught
}


def test_a_class_has_a_name_of_its_own() -> None:
    counted = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in counted.items() if count > 1} <= SHARED_CLASS_NAMES


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = ("util", "utils", "helper", "helpers", "manager", "misc", "common")
    assert not [m for m in MODULES if m.stem in empty]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_leakscope_is_light() -> None:
    loaded = modules_after("import leakscope")
    assert not loaded & {"torch", "matplotlib", "scipy", "rich", "jinja2", "objgraph", "pympler"}


def test_importing_leakscope_imports_no_framework() -> None:
    loaded = modules_after("import leakscope; leakscope.profile")
    frameworks = {"transformers", "lightning", "pytorch_lightning", "ignite", "accelerate", "keras"}
    assert not loaded & frameworks


@pytest.mark.parametrize(
    "module", [*(PACKAGE / "capture" / "frameworks").glob("*.py")], ids=lambda m: m.stem
)
def test_a_framework_is_imported_by_its_own_module_alone(module: Path) -> None:
    frameworks = {"transformers", "lightning", "pytorch_lightning", "ignite", "accelerate", "keras"}
    imported = {name.split(".")[0] for name in imported_names(module)}
    assert imported & frameworks <= {module.stem}


def test_the_cleanup_room_loads_no_torch() -> None:
    assert "torch" not in modules_after("import leakscope; leakscope.cleanup.memory_stats()")


def test_the_pytest_plugin_costs_a_run_next_to_nothing_that_does_not_use_it() -> None:
    without = modules_after("import pytest, leakscope")
    ours = {"leakscope.testing", "leakscope.testing.plugin"}
    assert modules_after("import pytest, leakscope, leakscope.testing.plugin") - without == ours


def test_the_command_line_starts_without_torch() -> None:
    loaded = modules_after("import leakscope.cli, leakscope.analysis, leakscope.report")
    assert "torch" not in loaded
