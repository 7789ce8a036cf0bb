"""Every kind of page that leakscope makes: of the samples, of odd runs, of hostile names."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import cuda_samples
import msgspec
import report_samples as samples
import retained_samples
from hostile_text import ATTACKS, infested
from rank_samples import rank, report_of

from leakscope.model.comparison import Comparison
from leakscope.model.documents import (
    Growth,
    GrowthReport,
    HistoryStep,
    ListedCulprit,
    ListedRun,
    RunHistory,
    RunLink,
    RunList,
    RunStatus,
)
from leakscope.model.report import (
    Excerpt,
    OddRank,
    RankAttempt,
    RankCourse,
    Report,
    RunVerdict,
    WorkerMemory,
)
from leakscope.report import (
    render_comparison_html,
    render_html,
    render_runs_html,
    render_snapshot_html,
)
from leakscope.report.html import render_growth_html

REPORTS = Path(__file__).parents[2] / "reports"
MIB = 1 << 20


def of_json(path: Path) -> str:
    """Return the page of a report or a comparison that was written as JSON."""
    if path.stem == "comparison":
        return render_comparison_html(msgspec.json.decode(path.read_bytes(), type=Comparison))
    return render_html(msgspec.json.decode(path.read_bytes(), type=Report))


def ranks() -> Report:
    """A run of nine ranks, one of which differs, that was started twice."""
    many = [rank(number) for number in range(9)]
    course = RankCourse(label="rank 0", points=[(float(x), 1e8 + 1e6 * x) for x in range(40)])
    attempts = [
        RankAttempt(number=n, ranks=9, steps=100, began_s=60.0 * n, duration_s=50, ended="killed",
                is_judged=n == 2)
        for n in (1, 2)
    ]  # fmt: skip
    return report_of(
        many,
        rank_courses=[course, msgspec.structs.replace(course, label="rank 8")],
        odd_rank=OddRank(rank=2, step=40, bytes=MIB, sentence="Rank 2 differs from step 40 on."),
        attempts=attempts,
    )


def workers() -> Report:
    """A run with DataLoader workers, one of which grows."""
    reported = [
        WorkerMemory(
            loader=1, worker=number, pid=100 + number, batches=400, prefetch=2,
            batch_bytes=MIB, pss_bytes=300 * MIB, private_first_bytes=90 * MIB,
            private_last_bytes=(90 + 80 * number) * MIB,
            written_last_bytes=(80 + 80 * number) * MIB, start_method="fork",
            grows=["Frames.decoded"] * number, copies=["Frames.index"],
        )
        for number in range(2)
    ]  # fmt: skip
    leaking = samples.leaking()
    first, *rest = leaking.culprits
    grown = msgspec.structs.replace(
        first, name="Frames.decoded", path=retained_samples.IN_WORKER, workers=1
    )
    return msgspec.structs.replace(
        leaking,
        workers=reported,
        culprits=[grown, *rest],
        work=msgspec.structs.replace(leaking.work, processes=3),
        retained_elsewhere=[retained_samples.of_worker(), retained_samples.of_worker(0, 0)],
    )


def growth() -> GrowthReport:
    """What a test marked as free of leaks left behind."""
    grown = Growth(
        path="test_cache·STORE.seen", holder="test_cache.STORE.seen", type="list", kind="list",
        bytes_per_call=4096.0, objects_per_call=1.0, fed_by="test_cache.py:12",
        feeding=["test_cache.py:12"], defined_at="test_cache.py:3", holds=["bytes"],
        advice="Empty it when the test ends.", diff=samples.DIFF,
        excerpts=[Excerpt(file="test_cache.py", first_line=11, marked=[12],
                          lines=["def test_cache():", "    STORE.seen.append(bytes(4096))"])],
    )  # fmt: skip
    return GrowthReport(
        leakscope_version="0.1.0", scenario="tests/test_cache.py::test_cache", calls=12,
        allow_bytes=0.0, growths=[grown],
    )  # fmt: skip


def long_names() -> Report:
    """A report whose every text holds a word that can be broken nowhere."""
    return infested(samples.on_device(), "_" + "unbroken" * 30)


def hostile() -> Report:
    """A report whose every text carries every attack at once."""
    return infested(samples.on_device(), "".join(ATTACKS))


def hostile_comparison() -> Comparison:
    """A comparison of that kind."""
    return infested(samples.comparison(), "".join(ATTACKS))


def many_runs() -> RunList:
    """Runs of every standing and verdict."""
    course = [float(MIB * (300 + 10 * i + 40 * (i % 3))) for i in range(40)]
    judged = [
        ListedRun(
            name=f"2026-03-0{day}-train", path="", standing=RunStatus.REPORTED, verdict=verdict,
            page=f"2026-03-0{day}-train/report.html", headline="Nothing grows.", created=1.7e9,
            script="src/train.py", duration_s=3600.0, growth_bytes_per_unit=day * 4.0 * MIB,
            growth_unit="epoch", peak_bytes=max(course), course=course,
            top_culprit=ListedCulprit(name="Trainer.boxes", bytes_per_unit=MIB, unit="step")
            if day < 3
            else None,
        )
        for day, verdict in enumerate(RunVerdict, 1)
    ]  # fmt: skip
    rest = [
        ListedRun(name=item.value, path="", standing=item, remark="`leakscope report runs/one`.")
        for item in (RunStatus.RUNNING, RunStatus.UNREPORTED, RunStatus.UNREADABLE)
    ]
    link = RunLink(label="Before and after", page="comparison.html", sentence="The leak is fixed.")
    past = RunHistory(
        script="src/train.py", culprit="Trainer.boxes", is_code=True, unit="step",
        sentence="It no longer grows since third (commit c0ffee3).",
        steps=[
            HistoryStep(name=name, commit=commit, created=1.7e9, bytes_per_unit=rate)
            for name, commit, rate in (
                ("first", "c0ffee1", 1.0 * MIB), ("second", "", None), ("third", "c0ffee3", 0.0)
            )
        ],
    )  # fmt: skip
    return RunList(
        directory="runs", runs=judged + rest, others=["notes"], links=[link], histories=[past]
    )


def page_of_runs(*lists: RunList) -> str:
    """Return the page of some lists."""
    return render_runs_html(lists, folder=Path())


MADE: dict[str, Callable[[], str]] = {
    "leaking": lambda: render_html(samples.leaking()),
    "clean": lambda: render_html(samples.clean()),
    "inconclusive": lambda: render_html(samples.inconclusive()),
    "out-of-memory": lambda: render_html(samples.out_of_memory()),
    "on-a-device": lambda: render_html(samples.on_device()),
    "cures-tried": lambda: render_html(samples.cures_tried()),
    "empty": lambda: render_html(samples.empty()),
    "ranks": lambda: render_html(ranks()),
    "workers": lambda: render_html(workers()),
    "long-names": lambda: render_html(long_names()),
    "hostile": lambda: render_html(hostile()),
    "comparison": lambda: render_comparison_html(samples.comparison()),
    "comparison-hostile": lambda: render_comparison_html(hostile_comparison()),
    "growth": lambda: render_growth_html(growth()),
    "growth-hostile": lambda: render_growth_html(infested(growth(), "".join(ATTACKS))),
    "snapshot": lambda: render_snapshot_html(cuda_samples.FAILED),
    "snapshot-empty": lambda: render_snapshot_html(cuda_samples.EMPTY),
    "runs": lambda: page_of_runs(many_runs()),
    "runs-hostile": lambda: page_of_runs(many_runs(), infested(many_runs(), "".join(ATTACKS))),
    "runs-none": lambda: page_of_runs(RunList(directory="runs", runs=[])),
    "snapshots": lambda: render_snapshot_html(cuda_samples.COMPARISON),
}
"""Pages of reports made by hand."""
SAMPLES: dict[str, Callable[[], str]] = {
    f"{path.parent.name}/{path.stem}": partial(of_json, path)
    for path in sorted(REPORTS.glob("*/*.json"))
}
"""Pages of the sample reports, made of their JSON as they would be made today."""
COMMITTED = sorted(REPORTS.rglob("*.html"))


@cache
def page_of(name: str) -> bytes:
    """Return one of these pages as it is written into a file."""
    return (MADE | SAMPLES)[name]().encode("utf-8", errors="backslashreplace")
