"""What is true of the zoo's programs, which this room's tests run too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "zoo"))
