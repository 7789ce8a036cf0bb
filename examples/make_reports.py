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
from html import escape
from pathlib import Path

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


def headline(out: Path, example: str, name: str) -> str:
    return str(json.loads((out / example / f"{name}.json").read_text())["headline"])


def write_index(out: Path) -> Path:
    """Write the page that links all sample reports under `out`."""
    sections = []
    for example, (title, _) in EXAMPLES.items():
        if not (out / example / "comparison.json").exists():
            continue
        items = "".join(
            f'<li><a href="{example}/{name}.html">{label}</a><p>'
            f"{escape(headline(out, example, name))}</p></li>"
            for name, label in (
                ("leaking", "Leaking"),
                ("fixed", "Fixed"),
                ("comparison", "Before and after"),
            )
        )
        sections.append(f"<section><h2>{escape(title)}</h2><ul>{items}</ul></section>")
    page = (HERE / "index.html.template").read_text().replace("<!-- reports -->", "".join(sections))
    index = out / "index.html"
    index.write_text(page)
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
