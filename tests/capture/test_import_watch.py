"""Several watches may wait for one module: each is notified, and the module knows of none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from leakscope.capture.torch_hooks.patching import ImportWatch


def test_two_watches_for_one_module_are_both_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awaited_by_two.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    messages: list[str] = []
    watches = [
        ImportWatch({"awaited_by_two": lambda _, n=n: messages.append(n)}) for n in ("a", "b")
    ]
    for watch in watches:
        watch.start()
    try:
        module = importlib.import_module("awaited_by_two")
    finally:
        for watch in watches:
            watch.stop()
        sys.modules.pop("awaited_by_two", None)
    assert sorted(messages) == ["a", "b"]
    assert "leakscope" not in type(module.__loader__).__module__
    assert not set(watches) & set(sys.meta_path)
