"""Diagnoses of device memory of a run: growth, holes, cache, pending frees, rounding, retries."""

from __future__ import annotations

import numpy as np

from leakscope.analysis.allocator.devices import (
    device_series,
    find_owners,
    has_risen_by,
    latest,
    peak_figures,
    private_growth,
    unexplained_rows,
)
from leakscope.analysis.allocator.segments import settings_advice
from leakscope.analysis.columns.series import INNER
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import CensusScope, RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count, human_share, plural

DEVICE_LEAK_REMEDY = Remedy(
    title="Find what allocates it: --cuda-history window",
    text="With that option of `leakscope run` the report has the lines that allocated what stays. "
    "Tensors without a Python name are kept by autograd graphs, by exceptions that were raised in "
    "backward(), by communication buffers or by C++ extensions.",
)

COLLECT = Remedy(
    title="Break the circles that keep tensors alive, or collect at the end of each epoch",
    text="Objects that refer to each other in a circle are freed only by the collector, and it "
    "counts objects, not bytes. Break the circle (weakref, del self.x), or call gc.collect() "
    "where large tensors have just been dropped.",
)


def diagnose_devices(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> list[Finding]:
    """Return what is conspicuous about the memory of each device."""
    devices = case.track.devices
    found = [_unnamed_growth_of(case, growth, ledgers, device) for device in devices]
    rules = (_fragmentation_of, _cache_growth_of, _pending_frees_of, _retries_of, _tiny_blocks_of)
    found += [find(case, device) for find in rules for device in devices]
    return [finding for finding in found if finding is not None]


def _named(case: RunContext, growth: SearchResult, device: str) -> float:
    """Return what names gained, those of caches among them that will stop at a bound."""
    across = [g for g in growth.growers if g.growth == "across"]
    return sum(case.gain_of(g) for g in [*across, *growth.filling] if g.device == device)


def _unnamed(ledgers: list[Ledger], device: str) -> float:
    """Return which part of what came to be allocated on a device its ledger could put under no
    name; 1 without a ledger.
    """
    mine = [ledger for ledger in ledgers if ledger.metric.startswith(f"{device}.")]
    entries = [entry for ledger in mine for entry in ledger.entries]
    free = sum(e.bytes for e in entries if e.kind in ("cached", "fragmentation"))
    whole = sum(ledger.total_bytes for ledger in mine) - free
    left = sum(e.bytes for e in entries if e.kind == "unnamed")
    return left / whole if whole > 0 else 1.0


def _unnamed_bytes(case: RunContext, device: str, root: RootKind) -> int:
    """Return what the last full census found on a device under no name, by who keeps it."""
    full = [c for c in case.table.censuses if c.scope is CensusScope.FULL]
    rows = full[-1].rows if full else []
    return sum(r.device_bytes.get(device, 0) for r in rows if r.root is root and not r.parent)


def _blocks(case: RunContext, device: str) -> str:
    """Return which blocks nothing explained where they were listed."""
    state = case.device_states.get(device)
    rows = [] if state is None else unexplained_rows(find_owners(state).blocks)
    if not rows:
        return ""
    places = f", allocated at {rows[0].allocated_at}" if rows[0].allocated_at else ""
    return (
        f" Most of what had no owner when its blocks were listed: {human_count(rows[0].count)} "
        f"of {human_bytes(rows[0].size)}{places}."
    )


def _unnamed_growth_of(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger], device: str
) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_ALLOCATED}"
    trend = case.gauge_trend(metric)
    if not trend.is_growing:
        return None
    unnamed = _unnamed(ledgers, device) * trend.net_bytes
    left = min(trend.net_bytes - _named(case, growth, device), unnamed)
    if left < max(policy.GROWTH_BYTES, policy.MOST_SHARE * trend.net_bytes):
        return None
    share = left / trend.net_bytes
    garbage = _unnamed_bytes(case, device, RootKind.GARBAGE)
    native = _unnamed_bytes(case, device, RootKind.NATIVE)
    sources = ((garbage, "awaited the collector"), (native, "was held by native code alone"))
    parts = [f"{human_bytes(size)} {what}" for size, what in sources if size >= policy.GROWTH_BYTES]
    seen = f" At the last full census {' and '.join(parts)}." if parts else ""
    return to_finding(
        "device_leak",
        f"Live memory without a name grows on {device}",
        f"Live tensors grew by {human_bytes(trend.net_bytes)}; {human_bytes(left)} of that "
        f"({human_share(share)}) is held by nothing that a census found: it is neither the "
        f"allocator's cache nor fragmentation.{seen}{_blocks(case, device)}",
        COLLECT if garbage > left / 2 else DEVICE_LEAK_REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        share=share,
        total_bytes=left,
        device=device,
        falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
    )


_HOW = " It is set in the environment: PYTORCH_CUDA_ALLOC_CONF."

FRAGMENTATION_REMEDY = Remedy(
    title="Let segments grow instead of multiplying",
    text="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad or bucket inputs of varying "
    "size. torch.cuda.empty_cache() returns only segments that are wholly free.",
)


def _fragmentation_of(case: RunContext, device: str) -> Finding | None:
    """Return what lies in holes: a note where it is there all the time, unless each step's peak
    fills it.
    """
    series = device_series(case, device)
    last = series.last
    if last is None:
        return None
    stuck = series.stuck()
    trend = case.trend_of(series.done, stuck)
    title, now, least = f"Free device memory is fragmented on {device}", stuck[-1], min(stuck)
    live = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    is_much = trend.is_growing and trend.net_bytes >= policy.COSTLY_BYTES
    is_useless = last.largest_hole < last.largest_live
    hole = (
        f"The largest free block has {human_bytes(last.largest_hole)}, "
        f"{'smaller than' if is_useless else 'enough for'} the largest live one of "
        f"{human_bytes(last.largest_live)}."
    )
    if is_much and live <= policy.CONSIDERABLE_SHARE * trend.net_bytes:
        return to_finding(
            "fragmentation",
            title,
            f"Bytes stuck in holes between live blocks grew by {human_bytes(trend.net_bytes)} to "
            f"{human_bytes(now)}, of {human_bytes(last.reserved)} reserved. {hole}",
            _remedy(case, device),
            severity=Severity.WARNING if is_useless else Severity.NOTE,
            trend=trend,
            total_bytes=now,
            device=device,
            falsifier=("empty_cache() would return it if it were plain cache.", None),
        )
    peak = latest(case, device, gauge.DEVICE_PEAK)
    is_filled = peak >= (1 - policy.LITTLE_SHARE) * last.reserved
    is_little = least < max(policy.COSTLY_BYTES, policy.LITTLE_SHARE * last.reserved)
    if len(stuck) < 2 or is_filled or is_little:
        return None
    return to_finding(
        "fragmentation",
        title,
        f"At every block list at least {human_bytes(least)} were stuck in holes between live "
        f"blocks ({human_share(least / last.reserved)} of what is reserved). {hole}",
        _remedy(case, device),
        severity=Severity.NOTE,
        total_bytes=least,
        device=device,
        growth="constant",
    )


def _remedy(case: RunContext, device: str) -> Remedy:
    """Return the setting that would have helped by the blocks of this run, with the evidence."""
    state, best = case.device_states.get(device), None
    if state is not None:
        peak = peak_figures(case, device, state.figures)
        advice = settings_advice(
            state.segments, state.figures, peak, state.record.settings, is_steady=True
        )
        best = next((item for item in advice if item.helps), None)
    if best is None:
        return FRAGMENTATION_REMEDY
    return Remedy(
        title=f"Try {best.title}",
        text=f"{best.evidence}{_HOW if ':' in best.title else ''} Padding or bucketing inputs of "
        "varying size helps too.",
    )


DEVICE_CACHE_REMEDY = Remedy(
    title="Nothing, unless another process needs the memory",
    text="torch.cuda.empty_cache() returns wholly free segments, at the price of asking the "
    "driver again. Inputs of varying size grow the cache: pad or bucket them, or warm up with the "
    "largest one first.",
)


def _cache_growth_of(case: RunContext, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_RESERVED}"
    trend = case.gauge_trend(metric)
    if not trend.is_growing:
        return None
    series = device_series(case, device)
    holes = series.gain("stuck") - series.gain("releasable")
    live = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    others = max(live, 0.0) + max(holes, 0.0) + max(private_growth(case, device), 0.0)
    most = policy.CONSIDERABLE_SHARE * trend.net_bytes
    if trend.net_bytes < policy.COSTLY_BYTES or others > most:
        return None
    has_blocks = series.last is not None
    how = " for the next request" if has_blocks else ", as cache or in holes"
    kept = f"the rest is free memory that the caching allocator keeps{how}"
    return to_finding(
        "device_cache",
        f"The device cache grows on {device}",
        f"Reserved memory grew by {human_bytes(trend.net_bytes)}, live tensors by "
        f"{human_bytes(live)}: {kept}.",
        DEVICE_CACHE_REMEDY,
        severity=Severity.NOTE if has_blocks else Severity.WARNING,
        trend=trend,
        total_bytes=latest(case, device, gauge.DEVICE_RESERVED),
        device=device,
        falsifier=("empty_cache() would return it if it were plain cache.", None),
    )


PENDING_FREE_REMEDY = Remedy(
    title="Wait for the other stream before letting go",
    text="Instead of tensor.record_stream(stream), keep the tensor and let the current stream "
    "wait (torch.cuda.current_stream().wait_stream(stream)) before it is deleted. With NCCL in "
    "older releases, TORCH_NCCL_AVOID_RECORD_STREAMS=1 does so for collectives.",
)


def _usual(case: RunContext, metric: str) -> float:
    """Return what usually waits at boundaries, also between phases: in a step much may."""
    values = case.track.gauge(metric)
    read = case.at_work(values)
    inner = np.isin(case.track.kind[read], INNER)
    usual = [np.median(values[read[where]]) for where in (inner, ~inner) if where.any()]
    return float(min(usual, default=0.0))


def _pending_frees_of(case: RunContext, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_PENDING}"
    _, y = case.gauge_series(metric)
    usual = _usual(case, metric)
    reserved = latest(case, device, gauge.DEVICE_RESERVED)
    if len(y) < policy.FEWEST_GROWING or usual < policy.COSTLY_BYTES:
        return None
    trend = case.gauge_trend(metric)
    grows = trend.is_growing and trend.net_bytes >= policy.COSTLY_BYTES
    return to_finding(
        "pending_free",
        f"Freed memory waits for another stream on {device}",
        f"At boundaries {human_bytes(usual)} ({human_share(usual / max(reserved, 1))} of what is "
        "reserved) were freed by the program and still in use on another stream"
        + (f"; it grew by {human_bytes(trend.net_bytes)}." if grows else "."),
        PENDING_FREE_REMEDY,
        severity=Severity.WARNING if grows else Severity.NOTE,
        trend=trend if grows else None,
        total_bytes=float(y.max()),
        device=device,
        growth="across" if grows else "constant",
        falsifier=("torch.cuda.synchronize() would free it.", None),
    )


TINY_BLOCKS_REMEDY = Remedy(
    title="Keep numbers, not tensors",
    text="loss.item() (or float(loss)) keeps a number; a tensor on the device takes 512 bytes at "
    "least, and with its graph much more. Where item() waits too often, gather into one tensor "
    "that is made beforehand.",
)


def _tiny_blocks_of(case: RunContext, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_BLOCKS}"
    trend = case.gauge_trend(metric, policy.TINY_BLOCKS)
    if not trend.is_growing or trend.net_bytes < policy.TINY_BLOCKS:
        return None
    allocated = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    rounding = has_risen_by(case, device, gauge.DEVICE_ROUNDING)
    if rounding < policy.MOST_SHARE * max(allocated, 1.0):
        return None
    return to_finding(
        "tiny_blocks",
        f"Tiny tensors pile up on {device}",
        f"{human_count(trend.net_bytes)} more blocks are in use than at the beginning "
        f"({human_count(trend.bytes_per_unit)} per {trend.unit}); of the {human_bytes(allocated)} "
        f"they take, {human_bytes(rounding)} is rounding.",
        TINY_BLOCKS_REMEDY,
        severity=Severity.NOTE,
        total_bytes=allocated,
        device=device,
    )


RETRIES_REMEDY = Remedy(
    title="Leave the device some room",
    text="A retry flushes the whole cache and waits for the device. Smaller batches, gradient "
    "accumulation or checkpointing lower the peak; where much of what is reserved is free, "
    "expandable_segments:True does. Look at who else uses the device.",
)


def _retries_of(case: RunContext, device: str) -> Finding | None:
    retries = int(latest(case, device, gauge.DEVICE_RETRIES))
    errors = int(latest(case, device, gauge.DEVICE_OOMS))
    if not retries and not errors:
        return None
    where = _phases(case, f"{device}.{gauge.DEVICE_RETRIES}")
    text = f"{plural(retries, 'time')} the driver had no room and the cache was flushed{where}."
    if errors:
        text += f" {plural(errors, 'out-of-memory error')} came of it."
    return to_finding(
        "allocation_retries",
        f"The allocator ran short of memory on {device}",
        text,
        RETRIES_REMEDY,
        severity=Severity.NOTE,
        total_bytes=latest(case, device, gauge.DEVICE_RESERVED),
        device=device,
        growth="constant",
    )


def _phases(case: RunContext, metric: str) -> str:
    track = case.track
    values = track.gauge(metric)
    known = np.flatnonzero(np.isfinite(values))
    rose = np.flatnonzero(np.diff(values[known]) > 0) + 1
    codes = set(track.before[known[rose]].tolist())
    names = [name for name in track.phases if track.phase_code(name) in codes]
    return f" in {' and '.join(names)}" if names else ""
