from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata

from leakscope.probes import environment


def test_versions_platform_and_processors_are_told():
    facts = environment()
    assert facts["python"] == platform.python_version()
    assert facts["torch"].startswith(metadata.version("torch").split("+")[0])
    assert int(facts["processors"]) >= 1
    assert facts["gc_enabled"] == "true"
    assert all(type(value) is str and value for value in facts.values())


def test_versions_of_more_libraries_are_told_and_change_nothing_else():
    facts = environment(["pytest", "python", "not-there", "PYTHONMALLOC"])
    assert facts["pytest"] == metadata.version("pytest")
    assert facts["python"] == platform.python_version()
    assert "not-there" not in facts


def test_allocator_settings_are_told_and_other_variables_are_not(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    facts = environment()
    assert facts["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "hunter2" not in str(facts)


def test_a_platform_that_tells_nothing_leaves_gaps(monkeypatch):
    module = sys.modules["leakscope.probes.environment"]
    for source in ("_platform", "_processors", "_allocator", "_version"):
        monkeypatch.setattr(module, source, _refuses)
    facts = environment()
    assert facts["python"]
    assert "processors" not in facts


def test_asking_imports_no_library():
    code = (
        "import sys; from leakscope.probes import environment; facts = environment();"
        "print('torch' in facts, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def _refuses(*_):
    raise OSError("not on this platform")
