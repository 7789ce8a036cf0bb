"""What registries of the interpreter and of libraries keep is reported by their own names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from leakscope.model.registries import REGISTRIES

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
HEALTHY = PROGRAMS / "registries_healthy.py"
FILES = [
    PROGRAMS / f"{name}.py"
    for name in ("registries", "registries_of_torch", "registries_of_libraries")
]
BUFFER = 300_000
"""Bytes that each step of most programs registers."""


@dataclass(frozen=True)
class Kept:
    """What a program registers, and how the report says so."""

    registry: str
    """Its name in the table of registries; empty where it isn't counted."""
    name: str
    """A part of the row's name, or the beginning of the finding's title where that isn't the
    registry's own."""
    bytes_a_step: int = 0
    """Where nearly nothing else comes with them."""
    has_a_name: bool = False
    """Whether what grows has a name that tells more: then that is reported first, and the registry
    in a note."""
    needs: str = ""
    """A package that may be missing."""


KEPT = {
    # The interpreter and its library.
    "exit_handlers": Kept("exit-handlers", "Calls pile up that are to be made when", BUFFER),
    "finalizers": Kept("finalizers", "weakref.finalize._registry", BUFFER),
    "interned_strings": Kept("interned-strings", "interned"),
    "collector_callbacks": Kept("collector-callbacks", "gc.callbacks", BUFFER),
    "signal_handlers": Kept("signal-handlers", "signal.getsignal(SIGUSR1)", BUFFER),
    "import_paths": Kept("import-paths", "sys.path"),
    "import_hooks": Kept("import-paths", "sys.meta_path", BUFFER),
    "modules": Kept("modules", "plugin_*.TABLE", BUFFER, has_a_name=True),
    "picklers": Kept("picklers", "copyreg.dispatch_table", BUFFER),
    "encodings_looked_up": Kept("encodings", "encodings._cache"),
    "overloads": Kept("overloads", "typing._overload_registry", BUFFER),
    "source_lines": Kept("source-lines", "linecache.cache", BUFFER),
    "warning_filters": Kept("warning-filters", "_warnings.filters"),
    "warnings_once": Kept("warnings-once", "_warnings._onceregistry", BUFFER),
    "loggers": Kept("loggers", "logging.Logger.manager.loggerDict"),
    "log_handlers": Kept("log-handlers", "log_handlers.log.handlers", BUFFER, has_a_name=True),
    "finished_threads": Kept("finished-threads", "finished_threads.jobs", BUFFER, has_a_name=True),
    "executors": Kept("executors", "executors.wait.buffer", BUFFER, has_a_name=True),
    "tasks": Kept("tasks", "tasks.wait.buffer", BUFFER, has_a_name=True),
    "foreign_types": Kept("foreign-types", "_ctypes._pointer_type_cache"),
    "process_finalizers": Kept("process-finalizers", "util._finalizer_registry", BUFFER),
    "process_children": Kept("process-children", "multiprocessing.process._children", BUFFER),
    "patches": Kept("patches", "unittest.mock._patch._active_patches", BUFFER),
    "audit_hooks": Kept("", "Audit hooks pile up", BUFFER),
    "codec_searches": Kept("", "Search functions of codecs pile up", BUFFER),
    "error_handlers": Kept("", "Error handlers of codecs pile up", BUFFER),
    "context_variables": Kept("", "Values of context variables pile up", BUFFER),
    "numbered_classes": Kept("", "New classes are made all along", BUFFER),
    # torch.
    "tree_nodes": Kept("tree-nodes", "_pytree.SUPPORTED_NODES"),
    "operators": Kept("operators", "torch.library"),
    "custom_operators": Kept("operators", "simple_registry.singleton._data", BUFFER),
    "module_hooks": Kept("module-hooks", "_global_forward_hooks", BUFFER),
    "backward_hooks": Kept("module-hooks", "_global_backward_hooks", BUFFER),
    "parameter_hooks": Kept("module-hooks", "_global_parameter_registration_hooks", BUFFER),
    "optimizer_hooks": Kept("optimizer-hooks", "_global_optimizer_post_hooks", BUFFER),
    "traced_sources": Kept("traced-sources", "_loader.eval_cache"),
    "script_types": Kept("script-types", "type_store"),
    "compilers": Kept("compilers", "eval_frame.cached_backends"),
    "compiled_modules": Kept("compiled-modules", "codecache.PyCodeCache", BUFFER),
    "sent_handles": Kept("sent-handles", "Shared memory that was sent is not received", BUFFER),
    "handles_by_name": Kept("", "Shared memory that was sent is not received", BUFFER),
    "kernels": Kept("kernels", "triton_kernel_wrap.KernelSideTable", BUFFER),
    # Other libraries.
    "image_formats": Kept("image-formats", "PIL.Image.SAVE", BUFFER),
    "arrow_types": Kept("arrow-types", "_python_extension_types_registry", BUFFER),
    "frame_options": Kept("frame-options", "pandas._config.config._registered_options", BUFFER),
    "frame_types": Kept("frame-options", "pandas.core.dtypes.base._registry.dtypes", BUFFER),
    "colormaps": Kept("colormaps", "colormaps._cmaps", BUFFER),
    "configurations": Kept("configurations", "CONFIG_MAPPING", BUFFER),
    "progress_bars": Kept("progress-bars", "progress_bars.bars", has_a_name=True),
    "tracker_records": Kept("tracker-records", "queue", has_a_name=True),
    "metrics": Kept("metrics", "prometheus_client.registry.REGISTRY", needs="prometheus_client"),
    "event_listeners": Kept(
        "event-listeners", "engine.dispatch.begin.listeners", BUFFER, True, needs="sqlalchemy"
    ),
    "custom_objects": Kept("custom-objects", "GLOBAL_CUSTOM_OBJECTS", BUFFER, needs="keras"),
}
FED_BESIDES = {"modules", "executors"}
"""What grows is fed at the line next to the one that registers."""
COUNTED = {"process_groups": "More and more process groups"}
"""Programs whose entries cost the process no memory of note: the registry is named in a note."""
LOOK_ALIKES = [
    *("living_finalizers", "bounded_patterns", "replaced_in_turn", "taken_back_in_batches"),
    *("filled_at_first", "hooks_of_a_phase", "nodes_at_first", "shared_tensors"),
    *("received_elsewhere", "filled_queue"),
]
BESIDES = {
    "compilation-records": "comes with compiled_modules",
    "shape-results": "test_sharded_training has shapes_sharded",
}
BOUNDED = {"patterns": "bounded_patterns", "shared-tensors": "shared_tensors"}
BOUNDED |= {"expressions": "expressions"}
SAMPLE = {"finalizers", "module_hooks", "exit_handlers"}
SHARING = {"sent_handles", "handles_by_name", "received_elsewhere", "filled_queue"}
"""Programs whose memory lies in /dev/shm."""
NEEDS = {case: kept.needs for case, kept in KEPT.items() if kept.needs}
NEEDS |= {"expressions": "numexpr"}


def program_of(case: str) -> Path:
    """Return the file that has a case."""
    return next(f for f in [*FILES, HEALTHY] if re.search(rf"^def {case}\(", f.read_text(), re.M))


def report_of(case: str, variant: str, folder: Path) -> dict[str, Any]:
    if find_spec(NEEDS.get(case, "leakscope")) is None:
        pytest.skip(f"{NEEDS[case]} isn't installed")
    if case == "interned_strings" and sys.version_info[:2] != (3, 12):
        pytest.skip("only CPython 3.12 never lets go of interned strings")
    if case in SHARING and not os.path.ismount("/dev/shm"):
        pytest.skip("there is no shared memory here")
    words = [sys.executable, str(program_of(case)), case, variant, "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, cwd=folder, env=environment, check=True, timeout=150)
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def registering_line(case: str) -> int:
    lines = program_of(case).read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {case}("))
    return next(n for n in range(start, len(lines)) if "registered here" in lines[n]) + 1


def notes_of(report: dict[str, Any]) -> dict[str, list[str]]:
    """Return the lines of the findings about registries, by title."""
    return {f["title"]: f["fed_at"] for f in report["findings"] if f["kind"] == "registry"}


def is_at(lines: list[str], case: str) -> bool:
    return any(line.endswith(f":{registering_line(case)}") for line in lines)


def test_every_registry_has_a_program() -> None:
    shown = {kept.registry for kept in KEPT.values()} | set(BESIDES)
    shown |= {case.replace("_", "-") for case in COUNTED} | set(BOUNDED)
    assert {each.name for each in REGISTRIES} <= shown
    assert {each.name for each in REGISTRIES if each.is_bounded} == set(BOUNDED)


@pytest.mark.parametrize("case", sampled(KEPT, SAMPLE))
def test_a_registry_that_grows_is_named_with_the_line_that_registers(
    case: str, tmp_path: Path
) -> None:
    report, kept = report_of(case, "leak", tmp_path), KEPT[case]
    assert report["verdict"] == "leak"
    first = [*report["culprits"], *report["findings"]][0]
    counted = [f"More and more {each.noun}" for each in REGISTRIES if each.name == kept.registry]
    named = first.get("title", "").startswith((kept.name, *counted))
    assert named or kept.name in first.get("name", "")
    if kept.bytes_a_step:
        assert first["bytes_per_unit"] == pytest.approx(kept.bytes_a_step, rel=0.1)
    assert is_at(first["fed_at"], case) is (case not in FED_BESIDES)
    if kept.has_a_name:
        assert set(counted) <= set(notes_of(report))


@pytest.mark.parametrize("case", sampled(COUNTED, set()))
def test_a_registry_that_costs_little_is_named_in_a_note(case: str, tmp_path: Path) -> None:
    notes = notes_of(report_of(case, "leak", tmp_path))
    assert is_at(notes[COUNTED[case]], case)


HEALTHY_CASES = [*KEPT, *COUNTED, *LOOK_ALIKES, "expressions"]


@pytest.mark.parametrize("case", sampled(HEALTHY_CASES, set()))
def test_what_is_taken_back_or_bounded_is_clean(case: str, tmp_path: Path) -> None:
    report = report_of(case, "fixed", tmp_path)
    assert report["verdict"] == "clean"
    assert not [f for f in report["findings"] if f["kind"] in ("registry", "unexplained")]
