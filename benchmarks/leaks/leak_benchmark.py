"""Run leakscope and its peers on leaks of libraries, leaking and repaired, and score what they say.

    python benchmarks/leaks/leak_benchmark.py [--only GLOB] [--tools NAMES] [--quick] [--again]

Each pair is a program and two releases of a library (``tests/zoo/published``). What each tool said
is kept in ``results.json``, with its version and the day; runs of the same version that are there
aren't made again, unless ``--again`` says so. Prints the table that ``README.md`` has. Tools were
compared on the pairs of ``COMPARED_SETS``, and only these are run and counted. ``--quick`` takes
four pairs. ``--manifest`` prints the data set, the zoo's programs included, as JSON.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import readings
from readings import Accusation
from scorer import Known, Marks, Sum, add_up, mark

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "zoo"))

from corpus import Case, cases, feeding_lines  # noqa: E402
from published_leaks import CACHE, Release, installed, releases  # noqa: E402
from published_truth import PAIRS  # noqa: E402
from watched import FRAMES  # noqa: E402

RESULTS = HERE / "results.json"
QUICK = ("aiohttp_cookie_paths", "msgspec_raw", "numpy_reductions", "param_pipelines")
COMPARED_SETS = (1, 2)
"""Of the pairs: the third set's were run with no other tool yet."""
TIMEOUT_S = 300
KEPT_ENTRIES = 5
PEERS = {
    "tracemalloc": (readings.read_tracemalloc, ""),
    "objgraph": (readings.read_objgraph, "objgraph"),
    "pympler": (readings.read_pympler, "pympler"),
    "guppy3": (readings.read_guppy, "guppy3"),
    "memray": (readings.read_memray, "memray"),
    "scalene": (readings.read_scalene, "scalene"),
}
PEER_PACKAGES = (
    "memray", "scalene", "guppy3", "textual", "rich-argparse", "nvidia-ml-py", "linkify-it-py",
    "mdit-py-plugins", "uc-micro-py", "astunparse", "wheel",
)  # fmt: skip
"""Installed without dependencies, into a folder of their own, where they aren't there already."""
TOOLS = ("leakscope", *PEERS)


def known(case: Case, release: Release) -> Known:
    """Return what is true of one release, as far as a tool may say it."""
    if not release.is_leaking:
        return Known(leaking=False)
    pair, (leak,) = PAIRS[release.name], case.leaks
    lines = {f"{case.program.name}:{line}" for line in feeding_lines(case.program, leak)}
    return Known(True, frozenset(leak.names), frozenset(pair.piles), frozenset(lines))


def peers_folder(into: Path) -> Path:
    """Return the folder with the peers, installed if they aren't."""
    folder = into / ".peers"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*command, str(folder), *PEER_PACKAGES], check=True)
    return folder


def start(arguments: list[str], folder: Path, libraries: list[Path], **more: str) -> str:
    """Run Python in a folder; return why it failed, if it did."""
    path = os.pathsep.join(map(str, libraries))
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path, **more}
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT_S} s"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return f"exit code {done.returncode}: {last[:200]}" if done.returncode else ""


def run_leakscope(program: Path, folder: Path, libraries: list[Path]) -> tuple[Any, str]:
    command = ["-m", "leakscope", "run", "--quiet", "--out", "run", str(program)]
    fault = start(command, folder, libraries)
    written = folder / "run" / "report.json"
    return (json.loads(written.read_text()) if written.exists() else None), fault


def run_watched(tool: str) -> Callable[[Path, Path, list[Path]], tuple[Any, str]]:
    def run(program: Path, folder: Path, libraries: list[Path]) -> tuple[Any, str]:
        output = folder / "printed.json"
        fault = start(
            [str(HERE / "watched.py"), tool, str(output), str(program)], folder, libraries
        )
        return (json.loads(output.read_text()) if output.exists() else None), fault

    return run


LEAKED = """
import json, sys
from memray import FileReader
reader = FileReader(sys.argv[1])
rows = [{"size": one.size, "stack": [f"{file}:{line}" for _, file, line in one.stack_trace(60)]}
        for one in reader.get_leaked_allocation_records(merge_threads=True)]
rows = sorted((row for row in rows if row["stack"]), key=lambda row: -row["size"])
json.dump(rows[:100], open(sys.argv[2], "w"))
"""


def run_memray(program: Path, folder: Path, libraries: list[Path]) -> tuple[Any, str]:
    """Record with the allocator that its documentation wants for ``--leaks``."""
    record = ["-m", "memray", "run", "-q", "-f", "-o", "memray.bin", str(program)]
    fault = start(record, folder, libraries, PYTHONMALLOC="malloc")
    output = folder / "printed.json"
    if not fault:
        fault = start(["-c", LEAKED, "memray.bin", str(output)], folder, libraries)
    return (json.loads(output.read_text()) if output.exists() else None), fault


def run_scalene(program: Path, folder: Path, libraries: list[Path]) -> tuple[Any, str]:
    output = folder / "printed.json"
    fault = start(["-m", "scalene", "run", "-o", str(output), str(program)], folder, libraries)
    return (json.loads(output.read_text()) if output.exists() else None), fault


def perform(tool: str, release: Release, into: Path) -> dict[str, Any]:
    """Run one tool on one release; return what it said, as ``results.json`` keeps it."""
    runs = {"leakscope": run_leakscope, "memray": run_memray, "scalene": run_scalene}
    run, read = runs.get(tool) or run_watched(tool), PEERS.get(tool, (None, ""))[0]
    libraries = [installed(release, into), *([] if tool == "leakscope" else [peers_folder(into)])]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leaks-") as scratch:
        printed, fault = run(release.program, Path(scratch), libraries)
    seconds = time.monotonic() - begun
    found: list[Accusation] = []
    if printed is not None:
        found = readings.read_leakscope(printed) if read is None else read(printed)
    elif not fault:
        fault = "it printed nothing"
    verdict = printed["verdict"] if tool == "leakscope" and printed else ""
    return {
        "tool": tool,
        "version": version_of(tool, into),
        "day": f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "pair": release.name,
        "release": release.which,
        "packages": list(release.packages),
        "seconds": round(seconds, 1),
        "verdict": verdict,
        "fault": fault,
        "said": [asdict(shortened(item)) for item in found[:KEPT_ENTRIES]],
    }


def shortened(accusation: Accusation) -> Accusation:
    """Return an accusation without this machine's folders."""
    lines = tuple(short_place(place) for place in accusation.lines)
    name, size = short_place(accusation.name), round(accusation.size)
    return Accusation(name, lines, size, accusation.is_container)


def short_place(place: str) -> str:
    return "/".join(place.split("/")[-3:]) if place.startswith("/") else place


def version_of(tool: str, into: Path) -> str:
    """Return a tool's version; leakscope's has the last commit that changed the package."""
    if tool == "tracemalloc":
        return f"Python {sys.version.split()[0]}, {FRAMES} frames"
    if tool == "leakscope":
        last = ["git", "log", "-1", "--abbrev=8", "--format=%h", "--", "leakscope", "setup.py"]
        done = subprocess.run(last, cwd=ROOT, capture_output=True, text=True, check=False)
        return " at ".join(filter(None, (version(tool), done.stdout.strip())))
    found = list((into / ".peers").glob(f"{tool}-*.dist-info"))
    return found[0].stem.split("-")[1] if found else version(tool)


def marks_of(entry: dict[str, Any]) -> Marks:
    """Return the marks of an entry of ``results.json``."""
    release = Release(entry["pair"], entry["release"] == "leaking")
    said = [Accusation(**{**item, "lines": tuple(item["lines"])}) for item in entry["said"]]
    return mark(known(release.case, release), said, entry["verdict"], entry["fault"])


def table(entries: list[dict[str, Any]]) -> str:
    """Return the tools' rows, as Markdown."""
    head = (
        "| tool | leaking | right first | … by container | … by line | right within three "
        "| accuses nothing | called clean | repaired | accused | no result |\n"
        + "| --- " * 11
        + "|"
    )
    rows = [head]
    for tool in TOOLS:
        own = [entry for entry in entries if entry["tool"] == tool]
        if own:
            versions = ", ".join(sorted({entry["version"] for entry in own}))
            rows.append(table_row(f"{tool} {versions}", add_up(map(marks_of, own))))
    return "\n".join(rows)


def table_row(name: str, s: Sum) -> str:
    is_judge = name.startswith("leakscope")
    clean = str(s.called_clean) if is_judge else "–"
    cells = (name, s.leaking, s.first, s.container, s.line, s.within, s.silent, clean)
    return "| " + " | ".join(map(str, (*cells, s.repaired, s.accused, s.faults))) + " |"


def pair_rows(entries: list[dict[str, Any]]) -> str:
    """Return in which way each tool was right about each pair, as Markdown."""
    tools = [tool for tool in TOOLS if any(entry["tool"] == tool for entry in entries)]
    rows = ["| pair | " + " | ".join(tools) + " |", "| --- " * (len(tools) + 1) + "|"]
    reported = {(e["pair"], e["tool"], e["release"]): e for e in entries}
    for name in sorted({entry["pair"] for entry in entries}):
        cells = [
            cell(reported.get((name, tool, "leaking")), reported.get((name, tool, "repaired")))
            for tool in tools
        ]
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def cell(leaking: dict[str, Any] | None, repaired: dict[str, Any] | None) -> str:
    """Return what came of a pair, in a few letters that ``README.md`` explains."""
    if leaking is None:
        return ""
    single = marks_of(leaking)
    if single.fault:
        return "–"
    first = "+".join(single.first) or ("within three" if single.within else "wrong")
    if first == "wrong" and any(said["name"] == "unexplained" for said in leaking["said"][:1]):
        first = "unnamed"
    text = first if single.accuses else (single.verdict or "nothing")
    return text + (", accuses repaired" if repaired and marks_of(repaired).accuses else "")


def manifest() -> dict[str, Any]:
    """Return the data set: the zoo's programs and the pairs, with what is true of each."""
    programs = [
        {
            "name": case.name,
            "program": str(case.program.relative_to(ROOT)),
            "leaking": bool(case.leaks),
            "verdicts": case.truth.verdicts,
            "needs": case.truth.needs,
            "leaks": [
                {
                    "names": leak.names,
                    "also": leak.also,
                    "growth": leak.growth,
                    "lines": sorted(feeding_lines(case.program, leak)),
                    "bytes_per_unit": leak.kept,
                }
                for leak in case.leaks
            ],
        }
        for case in cases()
    ]
    pairs = [
        {
            "name": name,
            "program": str(Release(name, True).program.relative_to(ROOT)),
            **asdict(pair),
            "lines": sorted(feeding_lines(Release(name, True).program, pair.truth.leaks[0])),
        }
        for name, pair in PAIRS.items()
    ]
    return {"programs": programs, "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="GLOB", help="of the pairs' names")
    parser.add_argument("--tools", default=",".join(TOOLS), help="between commas")
    parser.add_argument("--quick", action="store_true", help="four pairs alone")
    parser.add_argument("--release", choices=["leaking", "repaired", "both"], default="both")
    parser.add_argument("--again", action="store_true", help="also what results.json has")
    parser.add_argument("--into", type=Path, default=CACHE, help="where libraries are installed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--manifest", action="store_true", help="print the data set and stop")
    parser.add_argument("--table", action="store_true", help="print the tables and run nothing")
    arguments = parser.parse_args()
    if arguments.manifest:
        print(json.dumps(manifest(), indent=1))
        return
    wanted = [tool for tool in arguments.tools.split(",") if tool]
    if unknown := sorted(set(wanted) - set(TOOLS)):
        parser.error(f"no such tool: {', '.join(unknown)}; there are {', '.join(TOOLS)}")
    results = arguments.results
    entries = json.loads(results.read_text()) if results.exists() else []
    some = [
        release
        for release in releases(arguments.only, COMPARED_SETS)
        if (release.name in QUICK or not arguments.quick)
        and arguments.release in (release.which, "both")
    ]
    for release in [] if arguments.table else some:
        for tool in wanted:
            key = (tool, release.name, release.which)
            same = [e for e in entries if (e["tool"], e["pair"], e["release"]) == key]
            has_same = any(e["version"] == version_of(tool, arguments.into) for e in same)
            if has_same and not arguments.again:
                continue
            entry = perform(tool, release, arguments.into)
            entries = [e for e in entries if e not in same] + [entry]
            entries.sort(key=lambda e: (e["pair"], e["release"], TOOLS.index(e["tool"])))
            results.write_text(json.dumps(entries, indent=1) + "\n")
            first = entry["said"][0]["name"] if entry["said"] else "nothing"
            print(f"{release.name:30} {release.which:9} {tool:12} {entry['seconds']:6.1f} s "
                  f"{entry['verdict'] or entry['fault']:14} {first}", flush=True)  # fmt: skip
    print(table(entries), pair_rows(entries), sep="\n\n")


if __name__ == "__main__":
    main()
