"""What is timed: a training loop plain, under leakscope and under its peers."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

LOOP = str(Path(__file__).with_name("training_loop.py"))
PLAIN = "plain"


@dataclass(frozen=True)
class Variant:
    """A way to run a loop."""

    name: str
    before: tuple[str, ...] = ()
    """What stands between the interpreter and the program."""
    after: tuple[str, ...] = ()
    """What follows the loop's own arguments."""
    separator: tuple[str, ...] = ()
    """What must stand between the program and its arguments."""
    needs: str = ""
    """The module without which it can't run."""
    peer: bool = True
    """Peers cost the same from the first step on and are timed on fewer epochs."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be run here."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def command(self, arguments: list[str]) -> list[str]:
        """Return the command line for a loop with these arguments."""
        return [
            sys.executable,
            *self.before,
            LOOP,
            *self.separator,
            *arguments,
            *self.after,
        ]


def variants(scratch: Path) -> list[Variant]:
    """Return all variants but the plain one; what they write goes into a folder."""
    leakscope = ("-m", "leakscope", "run", "--quiet", "--force", "--out", str(scratch / "run"))
    memray = ("-m", "memray", "run", "-q", "-f", "-o", str(scratch / "memray.bin"))
    scalene = ("-m", "scalene", "run", "--memory", "--outfile", str(scratch / "scalene.json"))
    return [
        Variant("leakscope (default)", leakscope, peer=False),
        Variant("leakscope --budget 0.5%", (*leakscope, "--budget", "0.5%"), peer=False),
        # Not by -X tracemalloc: what torch imports takes minutes with ten frames.
        Variant("tracemalloc, 1 frame", after=("--tracemalloc", "1")),
        Variant("tracemalloc, 10 frames", after=("--tracemalloc", "10")),
        Variant("memray", memray, needs="memray"),
        Variant("memray --native", (*memray, "--native"), needs="memray"),
        Variant("scalene", scalene, separator=("---",), needs="scalene"),
        Variant(
            "pympler's tracker, once an epoch", after=("--each-epoch", "pympler"), needs="pympler"
        ),
        Variant(
            "objgraph.growth, once an epoch", after=("--each-epoch", "objgraph"), needs="objgraph"
        ),
    ]
