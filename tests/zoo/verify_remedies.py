"""Apply each diff that a report of the zoo offers, run the program again, and count what is freed.

    python tests/zoo/verify_remedies.py [--only PATTERN] [--from FOLDER ...] [--jobs N] [--table]

Reads the recordings that ``record.py`` made, and runs ``leakscope verify`` for every culprit with a
diff. What came of each is kept in ``verified.json`` until the diff changes or is offered no more;
what a second run left unproven is tried again. ``--table`` prints the share that frees by kind of
remedy. The exit code is 1 where a kind frees or reduces in less than 90 % of those of its programs
whose second run could tell.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from archive import SUFFIX, unpack
from judge import SAMPLE, archives, known_cases
from record import CACHE, ROOT
from running import ONE_THREAD, TIMEOUT_S

from leakscope.analysis import analyse
from leakscope.model.report import Culprit, Severity
from leakscope.recording import open_run

VERIFIED = Path(__file__).parent / "verified.json"
LEAST_SHARE = 0.9
"""A kind of remedy that frees or reduces less often offers no diff."""


@dataclass(frozen=True)
class Offer:
    """A diff that the report of a recording offers."""

    archive: Path
    program: Path
    number: int
    """Rank of the culprit."""
    name: str
    kind: str
    """The remedy's title without the names of the program."""
    digest: str

    @property
    def key(self) -> str:
        return f"{self.program.stem} {self.number}"


@dataclass(frozen=True)
class Verified:
    """What came of an offer."""

    kind: str
    culprit: str
    digest: str
    outcome: str
    """``fixed``, ``reduced, not fixed``, ``not fixed``, ``unproven`` or ``not verified``."""
    text: str


def offers(archive: Path) -> list[Offer]:
    """Return the diffs for what a recording's report accuses."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        about = unpack(archive, Path(scratch))
        report = analyse(open_run(scratch))
    program = known_cases()[about.name].program
    return [
        Offer(
            archive,
            program,
            number,
            culprit.name,
            kind_of(culprit),
            hashlib.sha256((culprit.remedy.diff + program.read_text()).encode()).hexdigest()[:16],
        )
        for number, culprit in enumerate(report.culprits, 1)
        if culprit.remedy.diff and culprit.severity is not Severity.NOTE
    ]


def kind_of(culprit: Culprit) -> str:
    """Return a remedy's title without the names and numbers of the program."""
    words = culprit.remedy.title.replace(culprit.name, "…").split()
    plain = ["…" if re.search(r"[\d._()\[\]'\"]", word.rstrip(".,:;")) else word for word in words]
    return re.sub(r"…( …)+", "…", " ".join(plain))


def no_longer_offered(
    known: Iterable[str], files: Iterable[Path], every: Iterable[Offer]
) -> list[str]:
    """Return the keys of what was verified that the recordings' reports offer no more."""
    programs, offered = {file.name.partition(".")[0] for file in files}, {o.key for o in every}
    return [key for key in known if key.partition(" ")[0] in programs and key not in offered]


def is_settled(result: Verified | None, offer: Offer) -> bool:
    """Return whether it is known what this very diff does."""
    if result is None or result.digest != offer.digest:
        return False
    return result.outcome != _UNPROVEN


def verify(offer: Offer) -> Verified:
    """Run the program with the diff applied and return what became of the culprit."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        run = Path(scratch, "run")
        run.mkdir()
        unpack(offer.archive, run)
        command = [
            *(sys.executable, "-m", "leakscope", "verify", str(run), "--project", str(ROOT)),
            *("--remedy", str(offer.number), "--", str(offer.program)),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                env={**ONE_THREAD, **os.environ},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = f"took more than {TIMEOUT_S} s"
            return Verified(offer.kind, offer.name, offer.digest, "not verified", text)
    lines = [line.removeprefix("leakscope: ") for line in done.stderr.splitlines()]
    printed = re.compile(r"(fixed|reduced, not fixed|not fixed|unproven): (.*)")
    reported = next((match for line in lines if (match := printed.match(line))), None)
    if reported is None or done.returncode not in (0, 2):
        text = lines[-1] if lines else f"exit code {done.returncode}"
        return Verified(offer.kind, offer.name, offer.digest, "not verified", text)
    return Verified(offer.kind, offer.name, offer.digest, reported[1], reported[2])


def table(verified: Iterable[Verified]) -> tuple[str, list[str]]:
    """Return the shares by kind as Markdown, and the kinds that free too seldom."""
    by_kind: dict[str, list[Verified]] = defaultdict(list)
    for each in verified:
        by_kind[each.kind].append(each)
    rows, poor = ["| remedy | tried | frees | reduces | unproven |", "| --- " * 5 + "|"], []
    for kind, some in sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0])):
        rows.append(_row(kind, some))
        frees, reduces, unproven = _counts(some)
        if frees + reduces < LEAST_SHARE * (len(some) - unproven):
            poor.append(kind)
    return "\n".join(
        [*rows, _row("all", [each for some in by_kind.values() for each in some])]
    ), poor


def _row(name: str, some: Sequence[Verified]) -> str:
    return "| " + " | ".join(map(str, (name, len(some), *_counts(some)))) + " |"


_UNPROVEN = "unproven"


def _counts(some: Iterable[Verified]) -> list[int]:
    outcomes = [each.outcome for each in some]
    return [outcomes.count(name) for name in ("fixed", "reduced, not fixed", _UNPROVEN)]


def read_verified() -> dict[str, Verified]:
    if not VERIFIED.exists():
        return {}
    return {key: Verified(**value) for key, value in json.loads(VERIFIED.read_text()).items()}


def write_verified(verified: dict[str, Verified]) -> None:
    values = {key: asdict(value) for key, value in sorted(verified.items())}
    VERIFIED.write_text(json.dumps(values, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="parts of names, or globs")
    parser.add_argument("--from", dest="folders", type=Path, action="append", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--table", action="store_true", help="only print what was verified")
    arguments = parser.parse_args()
    known = read_verified()
    if not arguments.table:
        folders = arguments.folders or [CACHE, SAMPLE]
        files = [f for f in archives(folders, arguments.only) if f.name.endswith(f".short{SUFFIX}")]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            every = [offer for some in pool.map(offers, files) for offer in some]
            for key in no_longer_offered(known, files, every):
                del known[key]
            left = [o for o in every if not is_settled(known.get(o.key), o)]
            print(f"{len(every)} diffs, {len(every) - len(left)} verified already", flush=True)
            for offer, result in zip(left, pool.map(verify, left), strict=True):
                known[offer.key] = result
                write_verified(known)
                print(f"{result.outcome:18} {offer.key}: {result.text}", flush=True)
    text, poor = table(known.values())
    print(text)
    for kind in poor:
        print(f"frees in less than {LEAST_SHARE:.0%}: {kind}")
    sys.exit(1 if poor else 0)


if __name__ == "__main__":
    main()
