"""``python -m leakscope``: the command line."""

from __future__ import annotations

from leakscope.cli import main

if __name__ == "__main__":
    main()
