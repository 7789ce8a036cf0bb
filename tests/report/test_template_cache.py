"""Templates are compiled once, under the rules by which Python keeps its own modules compiled."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from leakscope.report.html import TemplateCache


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "page.j2").write_text("Hello {{ name }}")
    return tmp_path


def compiled(templates: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Return the page, and how many templates had to be compiled for it."""
    environment = Environment(
        loader=FileSystemLoader(templates), bytecode_cache=TemplateCache(templates), autoescape=True
    )
    compilations: list[str] = []
    compile_one = environment._compile
    monkeypatch.setattr(
        environment,
        "_compile",
        lambda source, name: (compilations.append(name), compile_one(source, name))[1],
    )
    page = environment.get_template("page.j2").render(name="you")
    return page, len(compilations)


def kept(templates: Path) -> list[Path]:
    return sorted(templates.rglob("*.pyc"))


def test_a_template_is_compiled_once(templates, monkeypatch):
    assert compiled(templates, monkeypatch) == ("Hello you", 1)
    assert compiled(templates, monkeypatch) == ("Hello you", 0)
    assert len(kept(templates)) == 1
    assert not [path for path in templates.rglob("*") if path.suffix not in ("", ".j2", ".pyc")]


def test_a_changed_template_is_compiled_again(templates, monkeypatch):
    compiled(templates, monkeypatch)
    (templates / "page.j2").write_text("Goodbye {{ name }}")
    assert compiled(templates, monkeypatch) == ("Goodbye you", 1)


@pytest.mark.parametrize("broken", [b"", b"\0" * 40, b"j2"])
def test_what_is_broken_is_compiled_again(templates, monkeypatch, broken):
    compiled(templates, monkeypatch)
    kept(templates)[0].write_bytes(broken)
    assert compiled(templates, monkeypatch) == ("Hello you", 1)


def test_what_was_cut_short_is_compiled_again(templates, monkeypatch):
    compiled(templates, monkeypatch)
    path = kept(templates)[0]
    for length in range(1, len(path.read_bytes()), 37):
        path.write_bytes(path.read_bytes()[:length])
        assert compiled(templates, monkeypatch)[0] == "Hello you"


def test_nothing_is_written_where_python_writes_nothing(templates, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert compiled(templates, monkeypatch) == ("Hello you", 1)
    assert kept(templates) == []


def test_a_folder_that_is_none_costs_the_cache_only(templates, monkeypatch):
    (templates / "__pycache__").write_text("a file")
    assert compiled(templates, monkeypatch) == ("Hello you", 1)


def test_a_prefix_is_followed(templates, monkeypatch, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    compiled(templates, monkeypatch)
    assert kept(templates) == []
    assert len(kept(prefix)) == 1
