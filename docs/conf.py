"""How Sphinx builds these pages: ``make docs``. Nothing is fetched, and no warning is let pass."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from sphinx.ext.napoleon import GoogleDocstring

import leakscope

project = "leakscope"
author = "the leakscope contributors"
release = version = leakscope.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
exclude_patterns = ["build", "known-culprits-head.md"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]

default_role = "code"
smartquotes = False  # an option is --epochs, not –epochs
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_mock_imports = ["ignite", "torch"]


class _StandIn(ModuleType):
    """A library that is imported only to be looked at.

    Each of its names is a class: what derives from a mock would be one too, without its arguments.
    """

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for library in (
    "accelerate",
    "accelerate.tracking",
    "keras",
    "lightning.pytorch",
    "transformers",
    "transformers.integrations",
):
    sys.modules[library] = _StandIn(library)
sys.modules["keras"].callbacks = _StandIn("keras.callbacks")


def _read_as_sentences(text: GoogleDocstring) -> tuple[str, list[str]]:
    """Return what an attribute's docstring says; types are in the code, not before a colon."""
    lines = text._dedent(text._consume_to_end())
    return "", text.__class__(lines, text._config).lines()


GoogleDocstring._consume_inline_attribute = _read_as_sentences
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "leakscope"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
