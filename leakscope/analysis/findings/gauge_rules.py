"""Diagnoses that are a gauge whose tail grows beyond a floor: one table of rules.

A new diagnosis of this kind is a row of ``RULES``. The growth model judges the gauge; a row says
with which noise, from which gain on it is a finding, and what to do. A row that depends on more
than its gauge has a function of its own that makes the finding, or none.

Tasks and threads are grouped by the function that they run, each group with a gauge of its own.
Diagnoses of torch's device allocator are in ``allocator.run_findings``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from leakscope.analysis.allocator.devices import device_series, outside_owners
from leakscope.analysis.columns.series import HOST, FloatArray
from leakscope.analysis.findings.native_references import (
    host_share,
    imputed_trend,
    may_hold,
    moves_with,
    without_name,
)
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import lines_that_fill, places_that_call, places_that_start
from leakscope.analysis.source.library_calls import FIGURE_MAKERS
from leakscope.analysis.verdict.wording import listed, to_finding
from leakscope.model import gauge
from leakscope.model.census import SHARED, Waiting, WaitKind, WaitPlace
from leakscope.model.registries import REGISTRIES, CountedRegistry
from leakscope.model.report import Culprit, Finding, Ledger, PiledUp, Remedy, Severity
from leakscope.model.text import clipped, human_bytes, human_count
from leakscope.model.trend import Trend

MOST_NAMED = 3
LONGEST_LINE = 60
"""Characters of a line of source that stands in a sentence."""
WARM_UP = "A warm-up would have ended within the run."
_THINGS = "{gained} more {noun} than at the beginning, {rate} per {unit}."


@dataclass(frozen=True)
class GaugeRule:
    """A gauge whose growth is a diagnosis by itself."""

    kind: str
    gauge: str
    """Of a device without the device's name."""
    title: str
    remedy: Remedy
    falsifier: str
    text: str = ""
    """With ``{gained}``, ``{held}``, ``{rate}`` and ``{unit}``; empty with ``to_finding``."""
    severity: Severity = Severity.WARNING
    floor: float = policy.GROWTH_BYTES
    """What the tail must have gained; of what is counted, all readings."""
    of_devices: bool = False
    noise: float = policy.GAUGE_NOISE_BYTES
    """Changes up to this much mean nothing."""
    counts: bool = False
    """Whether it counts things, not bytes."""
    holds_memory: bool = False
    """Whether memory that nothing else explains may be theirs."""
    kept_in: str = ""
    """The container that has them all: what each keeps is what it gained for each."""
    snapshot_field: str = ""
    """The sum of a device's blocks that stands for the gauge where that was not read."""
    made_by: frozenset[str] = frozenset()
    """Functions of pyplot that make them."""
    library: str = ""
    """The library that keeps them."""
    owners: Callable[[RunContext, str], tuple[str, Remedy | None]] | None = None
    """What says whose a device's memory is, in a further sentence, and the remedy that fits."""
    to_finding: Callable[[RunContext, SearchResult, GaugeRule, Trend], Finding | None] | None = None
    """What makes the finding where more than the gauge decides: None where there is none."""


def _things(kind: str, name: str, noun: str, remedy: Remedy, **more: object) -> GaugeRule:
    return GaugeRule(
        kind,
        name,
        f"More and more {noun}",
        remedy,
        f"If the {noun} are closed and memory grows on, it was not them.",
        _THINGS.replace("{noun}", noun),
        severity=Severity.NOTE,
        floor=policy.FEWEST_COUNTED,
        noise=policy.COUNT_NOISE,
        counts=True,
        **more,  # type: ignore[arg-type]
    )


def _gauge_trend(case: RunContext, rule: GaugeRule, device: str) -> tuple[Trend, float]:
    name = f"{device}.{rule.gauge}" if rule.of_devices else rule.gauge
    if rule.snapshot_field and not case.track.has_gauge(name):
        series = device_series(case, device)
        sizes = series.of(rule.snapshot_field)
        trend = case.trend_of(series.done, sizes)
    else:
        is_of_children = rule.gauge == gauge.CHILDREN_PSS
        done, sizes = case.children_series() if is_of_children else case.gauge_series(name)
        trend = case.trend_of(done, sizes, rule.noise)
    return trend, float(sizes[-1]) if len(sizes) else 0.0


def _gauge_finding(
    case: RunContext,
    growth: SearchResult,
    rule: GaugeRule,
    device: str,
    trend: Trend,
    last: float,
    ledgers: list[Ledger],
) -> Finding:
    human = human_count if rule.counts else human_bytes
    figures = {
        "gained": human(trend.net_bytes),
        "held": human(last),
        "rate": human(trend.bytes_per_unit),
        "unit": trend.unit,
    }
    shown_trend, total, severity = trend, last, rule.severity
    text, remedy = rule.text.format(**figures), rule.remedy
    if rule.owners is not None:
        owners, its_remedy = rule.owners(case, device)
        text, remedy = text + owners, its_remedy or remedy
    if rule.counts:
        total = without_name(case, growth, ledgers) if rule.holds_memory else 0.0
        shown_trend = imputed_trend(trend, total)
    each = _bytes_of_each(case, rule)
    if min(total, each * trend.net_bytes) >= policy.HARMLESS_BYTES:
        total, severity = each * trend.net_bytes, Severity.WARNING
        shown_trend = imputed_trend(trend, total)
        text += f" They hold {human_bytes(each)} each."
    elif rule.holds_memory and total >= policy.NOTEWORTHY_BYTES:
        severity = Severity.WARNING
        text += may_hold(total)
    return to_finding(
        rule.kind,
        rule.title.format(device=device),
        text,
        remedy,
        severity=severity,
        trend=shown_trend,
        share=host_share(case, shown_trend.net_bytes) if device == HOST else 0.0,
        total_bytes=total,
        device=device,
        fed_at=places_that_call(case.sources, {"plt", "pyplot"}, set(rule.made_by)),
        known=case.known_by(rule.library) if rule.library else None,
        falsifier=(rule.falsifier, None),
    )


def _bytes_of_each(case: RunContext, rule: GaugeRule) -> float:
    """Return what one of the things that are counted keeps, by the last two looks at all of them;
    0 where there weren't two, or they don't show that memory grew with the number.
    """
    table, path = case.table, case.table.number.get(rule.kept_in)
    if path is None or HOST not in table.retained:
        return 0.0
    retained = table.retained[HOST][path]
    seen = np.flatnonzero(np.isfinite(retained))[-2:]
    counts = [case.nearest(rule.gauge, int(table.at[column])) or 0.0 for column in seen]
    if len(seen) < 2 or counts[1] <= counts[0]:
        return 0.0
    return max(float(np.diff(retained[seen])[0]) / (counts[1] - counts[0]), 0.0)


def _shared_descriptors(
    case: RunContext, growth: SearchResult, rule: GaugeRule, trend: Trend
) -> Finding:
    """Return the finding, with what gains items as fast as descriptors come.

    By the sharing strategy ``file_descriptor``, torch's own on Linux, a tensor from another process
    holds its memory by a descriptor as long as it lives: ``Too many open files`` often comes before
    memory runs out (https://github.com/pytorch/pytorch/issues/11201). May be confused with batches
    on their way, whose number is bounded.
    """
    sent = _sent(case, gauge.SHARED_DESCRIPTORS)
    belongs = "was sent and not received" if sent else "a worker sent and that is still alive"
    text = (
        f"{human_count(trend.net_bytes)} more descriptors of shared memory than at the beginning, "
        f"{human_count(trend.bytes_per_unit)} per {trend.unit}: each belongs to a tensor that "
        f"{belongs}."
    )
    units = max(float(case.work_done[-1] - case.work_done[0]), 1.0)
    wanted = policy.MOST_SHARE * trend.bytes_per_unit * units
    across = [g for g in growth.growers if g.growth == "across" and g.items_per_unit]
    fast = [g for g in across if (g.items_per_unit or 0.0) * g.units >= wanted]
    names = [case.table.latest[g.path].name for g in fast][:MOST_NAMED]
    if names:
        text += f" {', '.join(names)} {'gain' if len(names) > 1 else 'gains'} items as fast."
    open_, is_near = _of_those_that_may_be_open(case, trend)
    text += open_
    return to_finding(
        rule.kind,
        rule.title,
        text,
        rule.remedy,
        severity=Severity.WARNING if is_near else Severity.NOTE,
        falsifier=(rule.falsifier, None),
        subject=",".join(names),
    )


def _of_those_that_may_be_open(case: RunContext, trend: Trend) -> tuple[str, bool]:
    """Return how many descriptors there were, as a further sentence, and whether ten such runs
    would come to the limit.
    """
    limit = case.nearest(gauge.OPEN_FILES_LIMIT, len(case.track) - 1)
    if not limit:
        return "", False
    # A program that ends has closed them: the most that were open count.
    most = float(np.nanmax(case.track.gauge(gauge.OPEN_FILES), initial=0.0))
    text = f" Of {human_count(limit)} that may be open {human_count(most)} were."
    return text, most + policy.HORIZON * trend.net_bytes >= limit


def _sent(case: RunContext, metric: str) -> CountedRegistry | None:
    """Return the registry that keeps for a receiver what a gauge of shared memory counts, if its
    entries come with it.
    """
    for registry in (each for each in REGISTRIES if each.keeps_shared):
        trend = case.gauge_trend(gauge.registry(registry.name), policy.COUNT_NOISE)
        if trend.is_growing and moves_with(case, registry, metric):
            return registry
    return None


def _descriptors_pile_up(case: RunContext) -> bool:
    trend = case.gauge_trend(gauge.SHARED_DESCRIPTORS, policy.COUNT_NOISE)
    files = case.gauge_trend(gauge.OPEN_FILES, policy.COUNT_NOISE)
    piles_up = trend.is_growing and trend.net_bytes >= policy.FEWEST_COUNTED
    return piles_up and trend.net_bytes >= policy.MOST_SHARE * files.net_bytes


def _of_rule(
    case: RunContext, rule: GaugeRule, trend: Trend, text: str, total: float, lines: list[str]
) -> Finding:
    """Return a finding, a critical one where ten such runs would take more memory than there is."""
    limit = case.limit_bytes or float("inf")
    is_fatal = case.used_at_end() + policy.HORIZON * trend.net_bytes >= limit
    return to_finding(
        rule.kind,
        rule.title,
        text,
        rule.remedy,
        severity=Severity.CRITICAL if is_fatal else Severity.WARNING,
        trend=trend,
        total_bytes=total,
        fed_at=lines,
        falsifier=(rule.falsifier, None),
    )


def _unmapped_shared_memory(
    case: RunContext, growth: SearchResult, rule: GaugeRule, trend: Trend
) -> Finding | None:
    """Return the finding, unless another process of the run has most of it under a name.

    It is what was sent to another process and isn't received, or what only a descriptor keeps:
    memory of no process, so that nothing else accuses it. All of it is this process's, so that less
    is enough than of files that anybody may have made. May be confused with what is on its way,
    which comes to a bound, and with files of the sharing strategy ``file_system``, which keep the
    sender's name in the process that has received them.
    """
    least = policy.MOST_SHARE * trend.net_bytes
    has_names = case.gauge_trend(gauge.SHM_FILES).net_bytes >= least
    if has_names and _named_elsewhere_bytes(case) >= least:
        return None
    text = (
        f"{human_bytes(trend.net_bytes)} of shared memory came that this process keeps and hasn't "
        f"mapped, {human_bytes(trend.bytes_per_unit)} per {trend.unit}; no name of the program's "
        "reaches it."
    )
    meant, lines = replace(rule, title=_SENT, remedy=_RECEIVE), _lines_that_send(case)
    if has_names:
        text += _BY_TORCH
    elif (sent := _sent(case, gauge.SHM_UNMAPPED)) is not None:
        come = case.gauge_trend(gauge.registry(sent.name), policy.COUNT_NOISE)
        text += f" {human_count(come.net_bytes)} more {sent.noun} came with it."
        opened = case.gauge_trend(gauge.SHARED_DESCRIPTORS, policy.COUNT_NOISE)
        open_, is_near = _of_those_that_may_be_open(case, opened)
        text += open_ if is_near else ""
    else:
        meant = rule
        opens_more = case.gauge_trend(gauge.OPEN_FILES, policy.COUNT_NOISE).is_growing
        made_at = places_that_call(case.sources, {"os", ""}, {"memfd_create"})
        lines = made_at if opens_more else []
    most = float(np.nanmax(case.track.gauge(gauge.SHM_UNMAPPED)))
    return _of_rule(case, meant, trend, text, most, lines)


_SENT = "Shared memory that was sent is not received"
_BY_TORCH = " Torch made these files for tensors that are sent to processes."
_RECEIVE = Remedy(
    title="Receive what is sent, or send less",
    text="A tensor that is put into a queue or pipe of torch.multiprocessing stays in shared "
    "memory until a process takes it out: let the receiver keep up, bound the queue (maxsize), and "
    "send copies of small parts rather than whole tensors. What nobody needs any more is taken out "
    "and dropped.",
)


def _lines_that_send(case: RunContext) -> list[str]:
    sending = [registry for registry in REGISTRIES if registry.keeps_shared]
    return [line for registry in sending for line in lines_that_fill(case.sources, registry)]


def _shared_memory(
    case: RunContext, growth: SearchResult, rule: GaugeRule, trend: Trend
) -> Finding | None:
    """Return the finding where no name of the program holds most of the files.

    Segments of ``multiprocessing.shared_memory`` that are not unlinked, or tensors shared by
    ``file_system`` whose receiver never came (https://github.com/pytorch/pytorch/issues/17499), are
    memory of no process. May be confused with prefetched batches, which come and go, and with files
    of other programs of the same user, which bear no sign of who made them.
    """
    least = policy.MOST_SHARE * trend.net_bytes
    unmapped = case.gauge_trend(gauge.SHM_UNMAPPED)
    is_reported = unmapped.is_growing and unmapped.net_bytes >= least
    if is_reported or _named_shared_bytes(case) + _named_elsewhere_bytes(case) >= least:
        return None
    most = float(np.nanmax(case.track.gauge(gauge.SHM_FILES)))  # some may be gone at the end
    made_at = places_that_call(case.sources, {"shared_memory", ""}, {"SharedMemory"})
    has_no_children = float(np.nanmax(case.track.gauge(gauge.CHILDREN), initial=-1.0)) == 0.0
    is_its_own = bool(made_at) or not has_no_children
    text = (
        f"{human_bytes(most)} of named files came to /dev/shm in this run, "
        f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no name of the program holds them."
    )
    if _sent_by_children_bytes(case) >= least:
        rule, made_at = replace(rule, title=_SENT, remedy=_RECEIVE), _lines_that_send(case)
        text += _BY_TORCH
    else:
        text += " Unless somebody removes them, they stay when it ends."
        if not is_its_own:
            text += (
                " Another program of this user has probably made them: this one had no child "
                "process to share them with."
            )
    found = _of_rule(case, rule, trend, text, most, made_at)
    return found if is_its_own else msgspec.structs.replace(found, severity=Severity.NOTE)


def _mapped_shared_memory(
    case: RunContext, growth: SearchResult, rule: GaugeRule, trend: Trend
) -> Finding | None:
    """Return the finding where shared memory without files stays mapped, by no name.

    It is no private memory, so that nothing else accuses it. May be confused with pages of what was
    shared all along and is touched now, with batches on their way, which come and go, and with
    page-locked memory, which drivers map like it and which has a rule of its own.
    """
    sizes = [census.payload_bytes.get(SHARED, 0) for census in case.table.censuses]
    others = [case.gauge_trend(g).net_bytes for g in (gauge.SHM_FILES, gauge.PINNED_HOST)]
    known = max(_named_shared_bytes(case), *others) / policy.MOST_SHARE
    if not sizes or max(known, min(sizes)) >= trend.net_bytes:
        return None
    text = (
        f"{human_bytes(trend.net_bytes)} of shared memory came to be mapped in this process, "
        f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no name of the program's reaches "
        "it, and no file in /dev/shm stands for it."
    )
    mapped = float(case.gauge_series(gauge.MAPPED_SHARED)[1][-1])
    made_at = places_that_call(
        case.sources, {"shared_memory", "mmap", ""}, {"SharedMemory", "mmap"}
    )
    return _of_rule(case, rule, trend, text, mapped, made_at)


def _named_shared_bytes(case: RunContext) -> float:
    return _gain_of(census.payload_bytes.get(SHARED, 0) for census in case.table.censuses)


def _named_elsewhere_bytes(case: RunContext) -> float:
    return sum(
        _gain_of(m.census.payload_bytes.get(SHARED, 0) for m in other.measurements if m.census)
        for other in case.run.recordings
        if other.header is not case.recording.header
    )


def _sent_by_children_bytes(case: RunContext) -> float:
    """Return by how much more shared memory its child processes keep and haven't mapped."""
    name = gauge.SHM_UNMAPPED
    return sum(
        _gain_of(m.gauges[name] for m in child.measurements if name in m.gauges)
        for child in case.run.recordings
        if child.header.child is not None and child.header is not case.recording.header
    )


def _gain_of(readings: Iterable[int]) -> float:
    known = list(readings)
    return float(max(known) - known[0]) if known else 0.0


def _children(
    case: RunContext, growth: SearchResult, rule: GaugeRule, trend: Trend
) -> Finding | None:
    """Return the finding where children were read through most of the work.

    May be confused with workers that touch a shared dataset for the first time (copy on write),
    which levels off, and with workers that are started again in each epoch, which is a sawtooth.
    """
    done, _ = case.children_series()
    work = case.work_done[case.working]
    if done[-1] - done[0] < policy.MAIN_SHARE * (work[-1] - work[0]):
        return None  # they may have rested since
    most = float(np.nanmax(case.track.gauge(gauge.CHILDREN_PSS)))  # they may be gone at the end
    has_workers = any(r.header.worker is not None for r in case.run.recordings)
    whole = (case.device_gain(HOST) or 0.0) + case.children_gain()
    if has_workers:
        falsifier = "With num_workers=0 the growth moves to the main process, or ends."
        rule = replace(rule, remedy=_WORKERS_REMEDY, falsifier=falsifier)
    text = (
        f"Together they gained {human_bytes(trend.net_bytes)} and held up to {human_bytes(most)}; "
        f"{human_bytes(trend.bytes_per_unit)} more per {trend.unit}."
    )
    read, _ = case.gauge_series(gauge.CHILDREN_PSS)
    if work[-1] - read[-1] > policy.LITTLE_SHARE * (work[-1] - work[0]):
        first, last, end = (human_count(count) for count in (read[0], read[-1], work[-1]))
        text += f" They were read from {case.unit.name} {first} to {last} of {end} only."
    found = _of_rule(case, rule, trend, text, most, [])
    share = min(max(trend.net_bytes / whole, 0.0), 1.0) if whole > 0 else 0.0
    return msgspec.structs.replace(found, share=share)


_OWN_OUTSIDE = Remedy(
    title="Make groups, handles and engines once",
    text="Reuse process groups, or end each by torch.distributed.destroy_process_group(group): "
    "NCCL takes buffers per communicator, which NCCL_BUFFSIZE makes smaller. Unload engines "
    "(TensorRT, plans of cuDNN and cuFFT) that are no longer used, run libraries from few threads "
    "and streams, each of which has handles of its own, and look for cudaMalloc in extensions. On "
    "MPS pad inputs to few shapes.",
)
_OUTSIDE_REMEDIES = {
    gauge.DEVICE_OWN_OUTSIDE: _OWN_OUTSIDE,
    gauge.DEVICE_CHILDREN: Remedy(
        title="Look into the child processes",
        text="Each process that uses the device has a context of its own and what its tensors "
        "take: keep CUDA out of workers, or end them when they are done.",
    ),
    gauge.DEVICE_OTHERS: Remedy(
        title="Look at the other processes of the device",
        text="`leakscope gpu` lists them with what each uses. Nothing in this program holds it; it "
        "has less room for that reason.",
    ),
}
_GROUPS = gauge.registry("process-groups")


def _owners_of_outside(case: RunContext, device: str) -> tuple[str, Remedy | None]:
    """Return whose the memory outside torch's allocator is, by the driver, and what to do."""
    owners = outside_owners(case, device)
    if not owners:
        return "", None
    parts = [
        f"{human_bytes(each.used)} are of {each.name} ({human_bytes(each.gained)} more than before)"
        for each in owners
        if each.used or each.gained
    ]
    text = f" By the driver, {'; '.join(parts)}." if parts else ""
    groups = round(case.gauge_gain(_GROUPS) or 0.0)
    if groups > 0:
        text += (
            f" {human_count(groups)} process groups came and were not ended meanwhile: of NCCL "
            "each that has communicated keeps a communicator."
        )
    most = max(owners, key=lambda each: each.gained)
    return text, _OUTSIDE_REMEDIES.get(most.gauge)


_WORKERS_REMEDY = Remedy(
    title="Look into the workers",
    text="What a Dataset appends to itself in __getitem__, or an IterableDataset to a buffer in "
    "__iter__, grows in every worker. Hold large tables as one numpy array or tensor instead of "
    "many Python objects, so that reference counts don't copy their pages.",
)


RULES = (
    GaugeRule(
        "pinned_host",
        gauge.PINNED_HOST,
        "Page-locked host memory grows",
        Remedy(
            title="Pin a few buffers and use them again",
            text="Pin buffers of fixed size once and copy into them, pad batches to equal sizes, "
            "and don't gather pinned tensors (x.cpu() of results needs no pinning). torch rounds "
            "each pinned block up to a power of two and keeps it when it is freed.",
        ),
        WARM_UP,
        "Pinned memory that torch owns grew by {gained} to {held}. It can't be swapped, and torch "
        "keeps what is freed.",
    ),
    GaugeRule(
        "private_pools",
        gauge.DEVICE_PRIVATE,
        "Private memory pools grow on {device}",
        Remedy(
            title="Capture for a few shapes only",
            text="Each capture of a CUDA graph keeps a pool as large as its step. Pad inputs to "
            "some fixed shapes, capture those once, let captures share a pool (torch.cuda.graph(…, "
            "pool=…)), and let go of graphs and MemPool objects that are no longer replayed. With "
            "torch.compile: mark_dynamic, or a mode without cudagraphs for shapes that vary.",
        ),
        WARM_UP,
        "Memory reserved by CUDA graphs or MemPool grew by {gained} to {held}; no other request "
        "can use it.",
        of_devices=True,
        snapshot_field="private",
    ),
    GaugeRule(
        "outside_allocator",
        gauge.DEVICE_OWN_OUTSIDE,
        "This process's memory outside torch's allocator grows on {device}",
        _OWN_OUTSIDE,
        WARM_UP,
        "What the driver counts for this process beyond torch's reserved memory grew by {gained} "
        "to {held}, {rate} per {unit}: contexts, communicators of NCCL, handles and kernels of "
        "libraries, what extensions allocate, and on MPS the graphs of each shape.",
        of_devices=True,
        owners=_owners_of_outside,
    ),
    GaugeRule(
        "outside_allocator",
        gauge.DEVICE_OUTSIDE,
        "Memory outside torch's allocator grows on {device}",
        Remedy(
            title="See who uses the device",
            text="nvidia-smi lists the processes of the device. If it is this one: reuse process "
            "groups instead of making new ones, unload engines (TensorRT, cuDNN plans) that are no "
            "longer used, and look for cudaMalloc in extensions. NCCL takes buffers per "
            "communicator: NCCL_BUFFSIZE makes them smaller.",
        ),
        "With no other process on the device it would be this one's.",
        "What the device has in use beyond torch's reserved memory grew by {gained} to {held}: "
        "libraries of this process, or another process on the device.",
        severity=Severity.NOTE,
        of_devices=True,
        owners=_owners_of_outside,
    ),
    _things(
        "open_figures",
        gauge.FIGURES,
        "open figures",
        Remedy(
            title="Close figures after saving them",
            text="pyplot keeps every figure until it is closed: call plt.close(fig) after "
            "fig.savefig(…), or use matplotlib.figure.Figure directly.",
        ),
        holds_memory=True,
        kept_in="matplotlib._pylab_helpers·Gcf.figs",
        made_by=FIGURE_MAKERS,
        library="matplotlib",
    ),
    _things(
        "open_files",
        gauge.OPEN_FILES,
        "open files",
        Remedy(
            title="Close files",
            text="Open them with `with`, or close images after reading; a process may hold some "
            "thousand descriptors at most.",
        ),
    ),
    _things(
        "threads",
        gauge.THREADS,
        "threads",
        Remedy(
            title="Reuse one executor",
            text="Every thread keeps a stack and often an arena of its own: make one pool outside "
            "the loop, or use it as a context manager.",
        ),
    ),
    _things(
        "processes",
        gauge.CHILDREN,
        "child processes",
        Remedy(
            title="Let workers end",
            text="Keep one DataLoader (persistent_workers=True) instead of an iterator left "
            "unfinished in each epoch, and join processes that were started.",
        ),
    ),
    GaugeRule(
        "shared_memory",
        gauge.SHM_UNMAPPED,
        "Shared memory is kept by descriptors alone",
        Remedy(
            title="Close descriptors when nobody needs them",
            text="Call os.close() of each descriptor of shared memory (os.memfd_create, files in "
            "/dev/shm that have lost their name), or the object's close(): until then the memory "
            "stays, though nothing has it mapped.",
        ),
        "If it were on its way, it would come to a bound.",
        floor=policy.HARMLESS_BYTES,
        to_finding=_unmapped_shared_memory,
    ),
    GaugeRule(
        "shared_descriptors",
        gauge.SHARED_DESCRIPTORS,
        "File descriptors of shared memory pile up",
        Remedy(
            title="Keep copies of batches, not the batches",
            text="Store batch.clone() (or numbers computed from it) where batches are kept: the "
            "clone is ordinary memory and the descriptor is closed. ulimit -n raises the limit; "
            "torch.multiprocessing.set_sharing_strategy('file_system') needs no descriptors but "
            "leaves files in /dev/shm when a process is killed.",
        ),
        "If they were on their way, they would be closed at the next epoch.",
        floor=policy.FEWEST_COUNTED,
        noise=policy.COUNT_NOISE,
        to_finding=_shared_descriptors,
    ),
    GaugeRule(
        "shared_memory",
        gauge.SHM_FILES,
        "Files in shared memory pile up",
        Remedy(
            title="Unlink what is created",
            text="Call close() in every process and unlink() once for each SharedMemory that is "
            "created. For tensors, torch.multiprocessing.set_sharing_strategy('file_descriptor') "
            "leaves no names behind. What is there already: ls -l /dev/shm.",
        ),
        "If they were on their way, they would be gone at the next boundary; if another program of "
        "this user made them, they would come without this one, too.",
        floor=policy.NOTEWORTHY_BYTES,
        to_finding=_shared_memory,
    ),
    GaugeRule(
        "shared_memory",
        gauge.MAPPED_SHARED,
        "Shared memory stays mapped",
        Remedy(
            title="Close what is mapped",
            text="Call close() of each SharedMemory or mmap object when it is no longer read: it "
            "stays mapped until then, also where its file was removed. mmap.mmap(-1, …) is shared "
            "memory, too.",
        ),
        "If it were on its way, it would be unmapped at the next boundary.",
        floor=policy.NOTEWORTHY_BYTES,
        to_finding=_mapped_shared_memory,
    ),
    GaugeRule(
        "children",
        gauge.CHILDREN_PSS,
        "Child processes grow",
        Remedy(
            title="Look into the processes that were started",
            text="None of them is a recorded DataLoader worker. What is sent to a process and kept "
            "there grows in it: a multiprocessing Manager's list, a pool's cache, a logger's or a "
            "server's queue. Empty it from time to time, or send only what is needed later.",
        ),
        "Without those processes it ends.",
        floor=policy.HARMLESS_BYTES,
        to_finding=_children,
    ),
)


def diagnose_gauges(case: RunContext, growth: SearchResult, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each gauge of the table that grows."""
    found: list[Finding] = []
    for rule in RULES:
        if rule.gauge == gauge.OPEN_FILES and _descriptors_pile_up(case):
            continue
        if rule.gauge == gauge.SHARED_DESCRIPTORS and any(f.kind == "shared_memory" for f in found):
            continue  # they keep what is reported already
        for device in case.track.devices if rule.of_devices else [HOST]:
            if rule.gauge == gauge.DEVICE_OUTSIDE and any(
                each.kind == rule.kind and each.device == device for each in found
            ):
                continue  # its own part grows by itself
            trend, last = _gauge_trend(case, rule, device)
            gained = trend.net_bytes + (trend.gained_before if rule.counts else 0.0)
            if not trend.is_growing or gained < rule.floor:
                continue
            if rule.to_finding is None:
                found.append(_gauge_finding(case, growth, rule, device, trend, last, ledgers))
            elif (finding := rule.to_finding(case, growth, rule, trend)) is not None:
                found.append(finding)
    return found


MOST_PLACES = 3
_ENDS = {
    WaitKind.TASK: Remedy(
        title="End the tasks of {name}",
        text="Let each end with what it is for: cancel() and await it there, start it inside an "
        "asyncio.TaskGroup or with asyncio.timeout(), or let one task do the work of all.",
    ),
    WaitKind.THREAD: Remedy(
        title="End the threads of {name}",
        text="Let each end with what it is for: set the event that it waits for and join() it, or "
        "make one pool outside the loop and shut it down at the end. Every thread keeps a stack "
        "and often an arena of its own.",
    ),
}
_LOAD_FALSIFIER = "If load had risen and they end with it, there would be fewer when it falls."
_POOLS_WORKER = "concurrent.futures.thread._worker"
_POOL = "ThreadPoolExecutor"
_LOST = {
    WaitKind.TASK: (
        "Nothing else refers to what they wait for, so that nothing can wake them: keep the future "
        "or event where somebody sets it, or wait with a limit."
    ),
    WaitKind.THREAD: (
        "Nothing else refers to what they wait for, so that nothing can wake or end them: keep "
        "the event or queue where somebody sets or fills it, or wait with a timeout."
    ),
}


def find_pileups(case: RunContext) -> list[Pileup]:
    """Return the tasks and threads of one function of which there are ever more, most first.

    May be confused with load that rises while it is recorded, which ends, and with a pool that
    fills.
    """
    latest = {group.key: group for census in case.table.censuses for group in census.waiting}
    found = []
    for key, seen in latest.items():
        x, counts = _before_teardown(case, gauge.waiting(key))
        trend = case.trend_of(x, counts, policy.COUNT_NOISE)
        gained = trend.net_bytes + trend.gained_before
        if not trend.is_growing or gained < policy.FEWEST_COUNTED:
            continue
        if seen.name == _POOLS_WORKER:
            group = msgspec.structs.replace(seen, name=_POOL)
            started_at = places_that_call(case.sources, {"", "futures"}, {_POOL})
        else:
            group = seen
            started_at = places_that_start(case.sources, group.name, group.file, group.line)
        summary = PiledUp(
            kind=group.kind.value,
            name=group.name,
            count=int(counts.max()),
            count_per_unit=trend.bytes_per_unit,
            unit=trend.unit,
            started_at=started_at,
            waits_at=[_where(case, place) for place in group.places[:MOST_PLACES]],
            is_lost=group.lost > 0,
        )
        found.append(Pileup(group, trend, summary))
    return sorted(found, key=lambda pileup: -pileup.summary.count)


def _before_teardown(case: RunContext, name: str) -> tuple[FloatArray, FloatArray]:
    """Return units done and readings of a count, without one at the very end that is lower."""
    x, counts = case.gauge_series(name)
    at = case.track.known(name)
    at = at[at <= case.working[-1]] if len(case.working) else at
    ends = len(at) and case.track.time_s[-1] - case.track.time_s[at[-1]] < policy.TEARDOWN_S
    falls = len(counts) > 1 and counts[-1] < counts[-2]
    return (x[:-1], counts[:-1]) if ends and falls else (x, counts)


@dataclass(frozen=True)
class Pileup:
    """Tasks or threads of one function of which there are ever more."""

    group: Waiting
    """As the last census that met them had it."""
    trend: Trend
    summary: PiledUp

    @property
    def sentence(self) -> str:
        """How many there are, where they were started, and where they wait."""
        summary, group = self.summary, self.group
        text = (
            f"{human_count(summary.count)} {group.kind.value}s of {group.name} are alive, "
            f"{human_count(summary.count_per_unit)} more per {summary.unit}"
        )
        if summary.started_at:
            text += f", started at {listed(summary.started_at[:MOST_PLACES])}"
        if summary.waits_at:
            most, all_ = group.places[0].count, group.count
            share = "all wait" if most >= all_ else f"{human_count(most)} of them wait"
            text += f"; {share} at {summary.waits_at[0]}"
        return f"{text}.{' ' + _LOST[group.kind] if summary.is_lost else ''}"

    @property
    def remedy(self) -> Remedy:
        """What to change, wherever they are kept."""
        remedy, where = _ENDS[self.group.kind], self.summary.started_at
        begins = f"They are started at {where[0]} and never end. " if where else "They never end. "
        lost = f" {_LOST[self.group.kind]}" if self.summary.is_lost else ""
        return Remedy(
            title=remedy.title.replace("{name}", self.group.name),
            text=f"{begins}{remedy.text}{lost}",
        )


def _where(case: RunContext, place: WaitPlace) -> str:
    """Return ``await asyncio.sleep (service.py:12)``; where C waits, the line itself, and where a
    library waits, what it waits in.
    """
    at = case.sources.location(place.file, place.line)
    if Path(at).is_absolute():
        return place.at or place.function
    text = case.sources.files.text_at(place.file, place.line)
    if place.at:
        awaits = "await " if "await " in text or text.startswith("async ") else ""
        return f"{awaits}{place.at} ({at})"
    return f"{clipped(text, LONGEST_LINE)} ({at})" if text else f"{place.function} ({at})"


def diagnose_pileups(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger], culprits: Sequence[Culprit]
) -> Iterator[Finding]:
    """Yield a finding for tasks and threads of one function that no culprit's name holds."""
    named = {(c.piled_up.kind, c.piled_up.name) for c in culprits if c.piled_up is not None}
    unnamed = without_name(case, growth, ledgers)
    for pileup in find_pileups(case):
        summary, kind = pileup.summary, pileup.group.kind
        if (summary.kind, summary.name) in named:
            continue
        imputed = unnamed if unnamed >= policy.NOTEWORTHY_BYTES else 0.0
        is_much = imputed > 0 or summary.count >= policy.PILED_UP
        shown = imputed_trend(pileup.trend, imputed)
        yield to_finding(
            f"{kind.value}s",
            f"{kind.value.capitalize()}s of {summary.name} pile up",
            pileup.sentence + (may_hold(unnamed) if imputed else ""),
            pileup.remedy,
            severity=Severity.WARNING if is_much else Severity.NOTE,
            trend=shown,
            share=host_share(case, shown.net_bytes),
            total_bytes=shown.net_bytes,
            fed_at=summary.started_at,
            falsifier=(_LOAD_FALSIFIER, None),
            subject=summary.name,
        )
        unnamed = 0.0
