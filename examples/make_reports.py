"""Profile every example in its leaking and its fixed form and write the sample reports.

    python examples/make_reports.py [--out reports] [example …]

For each example the folder holds `leaking.html`, `fixed.html`, `comparison.html` and the JSON of
each. The recordings themselves lie under `build/` meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leakscope.model.documents import RunLink, RunList
from leakscope.report import render_runs_html
from leakscope.report.runs import read_listed


def by_command(program: Path, run: Path) -> list[str]:
    """`leakscope run` in front of an unmodified program."""
    return ["-m", "leakscope", "run", "--out", str(run), str(program)]


def by_itself(program: Path, run: Path) -> list[str]:
    """A program with a callback, a handler or a tracker of leakscope's."""
    return [str(program), "--out", str(run)]


def by_magic(program: Path, run: Path) -> list[str]:
    """A notebook that records a cell."""
    return ["examples/run_notebook.py", str(program), str(run)]


@dataclass(frozen=True)
class Example:
    """A program under `examples/`, in its leaking and its fixed form."""

    title: str
    options: tuple[str, ...] = ()
    """Of the program; `{scratch}` stands for the folder that is removed afterwards."""
    program: str = ""
    """The folder of the program; by default the example's own name."""
    recorded: Callable[[Path, Path], list[str]] = by_command
    """Returns the interpreter's arguments that record a program into a run directory."""
    forms: tuple[str, str] = ("train.py", "train_fixed.py")


LONGER = ("--epochs", "60")
"""So that measuring takes the part of a run that it takes of real ones."""
EXAMPLES = {
    "detector": Example("Few-shot detector"),
    "segmentation": Example("Volume segmentation with context features"),
    "classifier": Example("Image classifier"),
    "classifier_checkpointing": Example(
        "Image classifier, gradient checkpointing", ("--checkpointing",), program="classifier"
    ),
    "vision_language": Example("Vision-language model"),
    "with_transformers": Example(
        "With the Trainer of transformers", options=LONGER, recorded=by_itself
    ),
    "with_lightning": Example("With Lightning", options=LONGER, recorded=by_itself),
    "with_accelerate": Example("With Accelerate", options=LONGER, recorded=by_itself),
    "with_ignite": Example("With PyTorch-Ignite", options=LONGER, recorded=by_itself),
    "with_keras": Example("With Keras 3 on torch", options=LONGER, recorded=by_itself),
    "with_trackers": Example(
        "With TensorBoard", options=(*LONGER, "--logs", "{scratch}/logs"), recorded=by_itself
    ),
    "in_a_notebook": Example(
        "In a notebook", recorded=by_magic, forms=("leak.ipynb", "leak_fixed.ipynb")
    ),
}
MEASURED = {
    "zoo.html": (
        "The zoo",
        "programs that leak and look-alikes that don't, each with its verdict.",
    ),
    "robustness.html": ("Robustness", "the same under other seeds, lengths and budgets."),
}
HERE = Path(__file__).resolve().parent
SCRATCH = Path("build", "samples")


def python(*arguments: str) -> None:
    """Run Python in the repository's root and stop with its exit code if it fails."""
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=HERE.parent, check=False, stdout=sys.stderr
    )
    if finished.returncode:
        sys.exit(finished.returncode)


def make(name: str, out: Path) -> list[Path]:
    """Return the paths of the three pages made for one example."""
    folder, example = out / name, EXAMPLES[name]
    folder.mkdir(parents=True, exist_ok=True)
    scratch = SCRATCH / name
    shutil.rmtree(HERE.parent / scratch, ignore_errors=True)
    runs = [scratch / "leaking", scratch / "fixed"]
    for run, form in zip(runs, example.forms, strict=True):
        program = Path("examples") / (example.program or name) / form
        options = [option.format(scratch=scratch) for option in example.options]
        python(*example.recorded(program, run), *options)
        for suffix in (".html", ".json"):
            made = HERE.parent / run / f"report{suffix}"
            shutil.copyfile(made, (folder / run.name).with_suffix(suffix))
    for suffix in ("html", "json"):
        # Of the files next to it, to whose pages it then links.
        page, pair = folder / f"comparison.{suffix}", [str(folder / f"{r.name}.json") for r in runs]
        python("-m", "leakscope", "compare", *pair, "--format", suffix, "--out", str(page))
    shutil.rmtree(HERE.parent / scratch)
    return [folder / f"{name}.html" for name in ("leaking", "fixed", "comparison")]


def samples_of(out: Path, example: str) -> RunList:
    """Return the two runs of an example, and the page that holds them side by side."""
    folder = out / example
    runs = [
        read_listed(
            folder / f"{name}.json",
            name=label,
            path=f"{example}/{name}",
            page=str(folder / f"{name}.html"),
        )
        for name, label in (("leaking", "Leaking"), ("fixed", "Fixed"))
    ]
    compared = str(json.loads((folder / "comparison.json").read_text())["headline"])
    link = RunLink(
        label="Before and after", page=str(folder / "comparison.html"), sentence=compared
    )
    title = EXAMPLES[example].title
    return RunList(directory=example, title=title, runs=runs, links=[link], are_alike=True)


def measured(out: Path) -> list[RunList]:
    """Return the pages under `out` that tell how right the verdicts are; none where none is."""
    links = [
        RunLink(label=label, page=str(out / name), sentence=sentence)
        for name, (label, sentence) in MEASURED.items()
        if (out / name).exists()
    ]
    title = "How right the verdicts are"
    return [RunList(directory="", title=title, runs=[], links=links)] if links else []


def write_index(out: Path) -> Path:
    """Write the page that links all sample reports under `out`."""
    made = [name for name in EXAMPLES if (out / name / "comparison.json").exists()]
    index = out / "index.html"
    index.write_text(
        render_runs_html(
            [*(samples_of(out, example) for example in made), *measured(out)],
            folder=out,
            title="Sample reports",
            introduction="Training programs from `examples/`, each with its leaks, with them "
            "mended, and both held side by side. Made by `make reports`.",
        )
    )
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("reports"))
    parser.add_argument("examples", nargs="*", help=f"of {', '.join(EXAMPLES)}; all if none given")
    arguments = parser.parse_args()
    if unknown := set(arguments.examples) - set(EXAMPLES):
        parser.error(f"no such example: {', '.join(sorted(unknown))}")
    chosen = arguments.examples or list(EXAMPLES)
    pages = [page for example in chosen for page in make(example, arguments.out)]
    pages.append(write_index(arguments.out))
    print("Open one of these in a browser:")
    for page in pages:
        print(f"  {page}")


if __name__ == "__main__":
    main()
