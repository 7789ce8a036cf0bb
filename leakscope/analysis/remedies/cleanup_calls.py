"""Which cleaning calls can help in this run: what each really freed where it was tried.

A call that returns memory to the system or the driver gains only what isn't taken again. Where none
was tried, the ledger says which of them could help and which can't.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from leakscope.analysis.growth import policy
from leakscope.model import gauge
from leakscope.model.record import CleanupRecord, CleanupStep
from leakscope.model.report import (
    Culprit,
    Cure,
    Cures,
    Effect,
    Falsifier,
    Finding,
    Ledger,
    LedgerEntry,
)
from leakscope.model.run import Recording
from leakscope.model.text import human_bytes, plural

COLLECT, TRIM = "gc.collect()", "malloc_trim(0)"
PINNED = "page-locked memory"
MEASURE_CLEANUP = (
    "The calls were tried because --probe-cleanup asked for it; the garbage that they collected "
    "would otherwise have waited for Python's own collector."
)
_CONCLUSIONS = {
    Effect.HELPS: "it helps",
    Effect.LITTLE: "it helps little",
    Effect.USELESS: "it cannot help",
}


@dataclass(frozen=True)
class Trial:
    """One call at one boundary, with the levels around it."""

    step: CleanupStep
    place: str
    """The phase that had ended, or the mark."""
    resident: int
    reserved: dict[str, int]
    taken_again: int | None
    """By how much resident memory had risen by the next trial at this place, if there is one."""

    @property
    def host(self) -> int:
        """What it did for the host, whichever way it shows."""
        return max(self.step.host_freed or 0, self.step.host_returned, 0)

    @property
    def devices(self) -> dict[str, int]:
        """What it freed or returned per device."""
        step = self.step
        if step.call == TRIM:
            return {}
        changes = dict(step.device_freed if step.call == COLLECT else step.device_returned)
        if step.pinned_returned:
            changes[PINNED] = step.pinned_returned
        return changes


def find_cleanup_trials(recording: Recording) -> Cures | None:
    """Return what the trials of a run showed; None where none were requested or made."""
    records = recording.cleanups
    if not records:
        return None
    by_call: dict[str, list[Trial]] = defaultdict(list)
    for trial in _trials(recording):
        by_call[trial.step.call].append(trial)
    remarks = dict.fromkeys(remark for record in records for remark in record.remarks)
    return Cures(
        sentence=_sentence(recording),
        cures=[_judge_call(call, trials) for call, trials in by_call.items()],
        remarks=list(remarks),
    )


def with_results(suspect: Culprit, cures: Cures | None) -> Culprit:
    """Return a culprit, its falsifier answered by the collections that were tried alongside it."""
    tried = next((c for c in cures.cures if c.call == COLLECT), None) if cures else None
    if tried is None or suspect.falsifier is None:
        return suspect
    answer = (
        f"Tried: {COLLECT} freed {human_bytes(tried.host_bytes)} each time, and "
        f"{suspect.name} was there all the same."
    )
    return msgspec.structs.replace(suspect, falsifier=_answered(suspect.falsifier, answer))


def _answered(falsifier: Falsifier, *answers: str) -> Falsifier:
    result = " ".join(filter(None, (falsifier.result, *answers)))
    return msgspec.structs.replace(falsifier, result=result)


def with_result(finding: Finding, cures: Cures | None) -> Finding:
    """Return a finding, its falsifier answered by the trials of the call that it names."""
    falsifier = finding.falsifier
    if falsifier is None or cures is None:
        return finding
    tested = f"{falsifier.text} {falsifier.result or ''}"
    sentences = [cure.sentence for cure in cures.cures if cure.call.partition("(")[0] in tested]
    if not sentences:
        return finding
    return msgspec.structs.replace(finding, falsifier=_answered(falsifier, "Tried:", *sentences))


def with_measured_advice(ledger: Ledger, cures: Cures | None) -> Ledger:
    """Return a ledger whose advice on the calls is what they did when they were tried."""
    if cures is None:
        return ledger
    device = ledger.metric.rpartition(".")[0]
    sentences = [
        cure.sentence
        for cure in cures.cures
        if (cure.call not in (COLLECT, TRIM)) == bool(device) or cure.device_bytes.get(device)
    ]
    if not sentences:
        return ledger
    named = _named_sentence(ledger.entries, ledger.total_bytes)
    advice = " ".join(("Tried in this run:", *sentences, *named))
    return msgspec.structs.replace(ledger, advice=advice)


def _trials(recording: Recording) -> Iterator[Trial]:
    for place, records in _by_place(recording, recording.cleanups).items():
        for record, following in zip(records, [*records[1:], None], strict=True):
            again = _rise(record.after, following.before) if following is not None else None
            reserved = {
                name.rpartition(".")[0]: size
                for name, size in record.before.items()
                if name.endswith(f".{gauge.DEVICE_RESERVED}")
            }
            for step in record.steps:
                yield Trial(step, place, record.before.get(gauge.RSS, 0), reserved, again)


def _rise(before: dict[str, int], after: dict[str, int]) -> int | None:
    if gauge.RSS not in before or gauge.RSS not in after:
        return None
    return after[gauge.RSS] - before[gauge.RSS]


def _by_place(
    recording: Recording, records: Iterable[CleanupRecord]
) -> dict[str, list[CleanupRecord]]:
    boundaries = (measurement.boundary for measurement in recording.measurements)
    places = {b.index: b.label or b.phase for b in boundaries}
    by_place: dict[str, list[CleanupRecord]] = defaultdict(list)
    for record in records:
        by_place[places.get(record.boundary, "")].append(record)
    return by_place


def _sentence(recording: Recording) -> str:
    text = f"Tried {plural(len(recording.cleanups), 'time')}, where phases ended."
    grown = _grown(recording)
    if grown is not None and grown >= policy.GAUGE_NOISE_BYTES:
        text += (
            f" After them resident memory was still {human_bytes(grown)} higher the last time than "
            "before: none of them frees that."
        )
    return f"{text} {MEASURE_CLEANUP}"


def _grown(recording: Recording) -> int | None:
    """Return how much resident memory rose between trials after the same phase, all cleaned up.

    The first trial is passed over: memory is still warming up then.
    """
    by_place = _by_place(recording, recording.cleanups[1:]).values()
    levels = ([r.after[gauge.RSS] for r in group if gauge.RSS in r.after] for group in by_place)
    return max((known[-1] - known[0] for known in levels if len(known) > 1), default=None)


def _judge_call(call: str, trials: Sequence[Trial]) -> Cure:
    by_place: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_place[trial.place].append(trial)
    fewest = min(policy.FEWEST_READINGS, max(map(len, by_place.values())))
    enough = [group for group in by_place.values() if len(group) >= fewest]
    return max((_judged(call, group) for group in enough), key=_gain)


def _gain(cure: Cure) -> int:
    return cure.host_bytes - cure.taken_again_bytes + sum(cure.device_bytes.values())


def _judged(call: str, trials: Sequence[Trial]) -> Cure:
    host = _median(trial.host for trial in trials)
    again = _median(t.taken_again for t in trials if t.taken_again is not None)
    names = dict.fromkeys(name for trial in trials for name in trial.devices)
    devices = {name: _median(trial.devices.get(name, 0) for trial in trials) for name in names}
    found = [trial.step.objects for trial in trials if trial.step.objects is not None]
    cure = Cure(
        call=call,
        effect=Effect.UNDECIDED,
        sentence="",
        times=len(trials),
        seconds=median(trial.step.seconds for trial in trials),
        objects=_median(found) if found else None,
        host_bytes=host,
        device_bytes={name: size for name, size in devices.items() if size > 0},
        taken_again_bytes=max(0, min(host, again)) if call == TRIM else 0,
    )
    effect = _effect(cure, trials)
    return msgspec.structs.replace(
        cure, effect=effect, sentence=_describe_effect(cure, effect, trials[0].place)
    )


def _effect(cure: Cure, trials: Sequence[Trial]) -> Effect:
    if cure.times < policy.FEWEST_READINGS:
        return Effect.UNDECIDED
    resident = _median(trial.resident for trial in trials)
    gains = [(cure.host_bytes - cure.taken_again_bytes, resident)]
    for name, size in cure.device_bytes.items():
        whole = resident if name == PINNED else _median(t.reserved.get(name, 0) for t in trials)
        gains.append((size, whole))
    gains = [(size, whole) for size, whole in gains if size >= policy.GAUGE_NOISE_BYTES]
    if any(size >= policy.HARMLESS_SHARE * whole for size, whole in gains):
        return Effect.HELPS
    return Effect.LITTLE if gains else Effect.USELESS


def _describe_effect(cure: Cure, effect: Effect, place: str) -> str:
    parts = [human_bytes(cure.host_bytes)] if cure.host_bytes or not cure.device_bytes else []
    parts += [f"{human_bytes(size)} on {name}" for name, size in cure.device_bytes.items()]
    verb = "freed" if cure.call == COLLECT else "returned"
    took = f"{1000 * cure.seconds:.0f} ms" if cure.seconds >= 0.001 else "less than 1 ms"
    text = f"{cure.call} {verb} {' and '.join(parts)} in {took} each time"
    if effect in (Effect.HELPS, Effect.LITTLE) and place:
        text += f" after {place}"
    if cure.taken_again_bytes >= policy.GAUGE_NOISE_BYTES:
        text += f", of which {human_bytes(cure.taken_again_bytes)} were taken again by the next"
    if effect is Effect.UNDECIDED:
        return f"{text}; {plural(cure.times, 'trial')}, too few to judge by."
    return f"{text}: {_CONCLUSIONS[effect]}."


def _median(sizes: Iterable[int]) -> int:
    known = list(sizes)
    return int(median(known)) if known else 0


TRIMS = {
    "glibc": TRIM,
    "jemalloc": "jemalloc's background_thread",
    "tcmalloc": "MallocExtension_ReleaseFreeMemory()",
    "mimalloc": "mi_collect(true)",
}
"""What returns free memory, by allocator."""


def host_advice(total: int, entries: list[LedgerEntry], allocator: str = "glibc") -> str:
    """Return whether ``gc.collect()`` or ``malloc_trim`` could help, from the host's ledger."""
    if total < policy.GAUGE_NOISE_BYTES:
        return "Memory did not grow: nothing to give back."
    helps, cant = [], []
    for kind, call, why in (
        ("garbage", "gc.collect()", "awaits the collector"),
        ("slack", TRIMS[allocator], "is free in the C heap"),
    ):
        size = _sum(entries, kind)
        if size > policy.CONSIDERABLE_SHARE * total:
            helps.append(f"{call} ({human_bytes(size)} {why})")
        else:
            cant.append(call)
    text = [f"{' and '.join(helps)} could help."] if helps else []
    text += [f"{' and '.join(cant)} can't help much."] if cant else []
    return " ".join([*text, *_named_sentence(entries, total)])


def device_advice(total: int, entries: list[LedgerEntry]) -> str:
    """Return whether ``empty_cache()`` could help, from a device's ledger."""
    if total < policy.GAUGE_NOISE_BYTES:
        return "Device memory did not grow: nothing to give back."
    cached, stuck = _sum(entries, "cached"), _sum(entries, "fragmentation")
    if cached > policy.CONSIDERABLE_SHARE * total:
        return f"torch.cuda.empty_cache() could return {human_bytes(cached)} to the driver."
    if stuck > policy.CONSIDERABLE_SHARE * total:
        return (
            "empty_cache() can't help: free memory is stuck between live blocks; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True could."
        )
    return "empty_cache() can't help: the growth is in live tensors."


def _named_sentence(entries: list[LedgerEntry], total: int) -> list[str]:
    named = _sum(entries, "named", "graph")
    if named <= policy.CONSIDERABLE_SHARE * total:
        return []
    return [f"{human_bytes(named)} is held by names: only letting go of them frees it."]


def _sum(entries: list[LedgerEntry], *kinds: str) -> int:
    return sum(entry.bytes for entry in entries if entry.kind in kinds)
