"""How Sphinx builds these pages: ``make docs``. Nothing is fetched, and no warning is let pass."""

from __future__ import annotations

import sys
from types import ModuleType

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
exclude_patterns = ["build"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "fieldlist"]

default_role = "code"
smartquotes = False  # an option is --epochs, not –epochs
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# What the integrations are for is imported only to be looked at; stand-ins do for that.
autodoc_mock_imports = ["accelerate", "ignite", "keras", "torch", "transformers"]
sys.modules["lightning.pytorch"] = ModuleType("lightning.pytorch")
sys.modules["lightning.pytorch"].Callback = type("Callback", (), {})
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "leakscope"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
