"""Profile every example in its leaking and its fixed form and write the sample reports.

    python examples/make_reports.py [--out reports] [example …]

For each example the folder holds `leaking.html`, `fixed.html`, `comparison.html` and the JSON of
each. The recordings themselves go to a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from leakscope.model.runs import RunLink, RunList
from leakscope.report import render_runs_html
from leakscope.report.runs.reading import read_listed

EXAMPLES = {
    "detector": ("Few-shot detector", []),
    "segmentation": ("Volume segmentation with context features", []),
    "classifier": ("Image classifier", []),
    "classifier_checkpointing": ("Image classifier, gradient checkpointing", ["--checkpointing"]),
    "vision_language": ("Vision-language model", []),
}
HERE = Path(__file__).resolve().parent


def leakscope(*arguments: str) -> None:
    """Run leakscope in the repository's root and stop with its exit code if it fails."""
    command = [sys.executable, "-m", "leakscope", *arguments]
    finished = subprocess.run(command, cwd=HERE.parent, check=False, stdout=sys.stderr)
    if finished.returncode:
        sys.exit(finished.returncode)


def profile(script: str, options: list[str], run: Path, report: Path) -> None:
    leakscope("run", "--out", str(run), script, *options)
    for suffix in (".html", ".json"):
        shutil.copyfile(run / f"report{suffix}", report.with_suffix(suffix))


def make(example: str, out: Path) -> list[Path]:
    """Return the paths of the three pages made for one example."""
    folder = out / example
    folder.mkdir(parents=True, exist_ok=True)
    program = example.removesuffix("_checkpointing")
    options = EXAMPLES[example][1]
    with tempfile.TemporaryDirectory(prefix="leakscope-") as scratch:
        runs = [Path(scratch) / "leaking", Path(scratch) / "fixed"]
        for run, form in zip(runs, ("train", "train_fixed"), strict=True):
            profile(f"examples/{program}/{form}.py", options, run, folder / run.name)
        for suffix in ("html", "json"):
            page = folder / f"comparison.{suffix}"
            pair = [str(run) for run in runs]
            leakscope("compare", *pair, "--format", suffix, "--out", str(page))
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
    return RunList(directory=example, title=EXAMPLES[example][0], runs=runs, links=[link])


def write_index(out: Path) -> Path:
    """Write the page that links all sample reports under `out`."""
    made = [name for name in EXAMPLES if (out / name / "comparison.json").exists()]
    index = out / "index.html"
    index.write_text(
        render_runs_html(
            [samples_of(out, example) for example in made],
            beside=out,
            title="Sample reports",
            lead_in="Training programs from `examples/`, each with its leaks, with them mended, "
            "and both held side by side. Made by `make reports`.",
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
