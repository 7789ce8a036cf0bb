"""How culprits and findings are written down: sentence, falsifier, pinned graphs, signature."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.events import CounterRate, EventFit, Regressor
from leakscope.analysis.growth.rows import Grower, bytes_when_full
from leakscope.model.boundary import Event
from leakscope.model.census import CensusRow, Content, RootKind
from leakscope.model.known import Recognised
from leakscope.model.record import CompilationRecord
from leakscope.model.report import (
    EventGrowth,
    EventRate,
    Falsifier,
    Finding,
    Remedy,
    Severity,
)
from leakscope.model.text import clipped, human_bytes, human_count, human_share, plural
from leakscope.model.trend import Trend

_ROOTS = {
    RootKind.LOCAL: "a local variable of a running function",
    RootKind.GLOBAL: "a module's global",
    RootKind.CLASS_ATTRIBUTE: "a class attribute",
    RootKind.THREAD_LOCAL: "a thread-local",
    RootKind.GENERATOR: "a suspended generator",
    RootKind.LIBRARY: "a library's own name",
}
LONGEST_REASON = 160
"""Characters of the guard that failed."""
_FORM = re.compile(r"(?P<type>[a-z]+\d*\w*) \((?P<shape>[\d, ]*)\) on (?P<device>[\w:]+)")


def sentence(
    row: CensusRow,
    grower: Grower,
    share: float,
    total: float,
    peak: float,
    pinned: dict[str, int],
) -> str:
    """Return a culprit in a sentence or two, and what graphs it pins."""
    growth = _growth(row, grower, share, total, peak)
    return f"{growth} {describe_graphs(row.graph_nodes, pinned)}".rstrip()


def _growth(row: CensusRow, grower: Grower, share: float, total: float, peak: float) -> str:
    if grower.growth == "across":
        full, capacity = (
            bytes_when_full(row, float(grower.y[-1])),
            human_count(float(row.capacity or 0)),
        )
        return (
            f"{row.name} ({row.type}) grows by {per_unit(grower)}{_items(grower)} and held "
            f"{human_bytes(total)}; that is {human_share(share)} of the growth of memory."
        ) + (
            f" It ends at {capacity} entries, some {human_bytes(full)}." if full is not None else ""
        )
    text = (
        f"{row.name} ({row.type}) climbs by {per_unit(grower)}{_items(grower)} during "
        f"{grower.phase} to {human_bytes(total)}"
    )
    text += " and falls back when it ends" if grower.falls_back else ", which lasted to the end"
    if peak > 1.1 * total:
        text += f"; by its last batch that comes to about {human_bytes(peak)}"
    return f"{text}. That is {human_share(share)} of the height of the phase."


def with_other_holders(remedy: Remedy, others: list[str], freed: float) -> Remedy:
    """Return the remedy; where others hold the same contents, it says so and what that means."""
    if not others:
        return remedy
    names = listed([f"`{name}`" for name in others])
    holds = "holds" if len(others) == 1 else "hold"
    warning = (
        f"{names} {holds} the same objects: letting go of them here alone frees "
        f"{human_bytes(freed)}. Let go of them there too."
    )
    text, advice = f"{warning} {remedy.text}", remedy.advice and f"{warning} {remedy.advice}"
    return msgspec.structs.replace(remedy, text=text, advice=advice)


def listed(names: list[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def per_unit(grower: Grower) -> str:
    """Return ``2.1 MiB per validation``."""
    return f"{human_bytes(grower.trend.bytes_per_unit)} per {grower.unit}"


def _items(grower: Grower) -> str:
    items = grower.items_per_unit
    if not items or items < 0.05:
        return ""
    count = human_count(items)
    return f" (+{count} {'item' if count == '1' else 'items'})"


def falsifier(row: CensusRow, grower: Grower, holders: list[str]) -> Falsifier:
    """Return what would prove a verdict wrong; the census itself has tried the collector."""
    holder = holders[0] if holders else f"{row.name}, {_ROOTS.get(row.root, 'a root')}"
    reachable = f"gc.collect() would free 0 B of it: it is reachable from {holder}."
    if grower.growth == "within":
        return Falsifier(
            text="If it were needed only per batch, it would not be higher at the next one.",
            result=f"It climbed in {plural(grower.repeats, 'passage')}"
            f"{' and fell back' if grower.falls_back else ''}. {reachable}",
        )
    return Falsifier(
        text="It is no leak if gc.collect() frees it, or if it rests for longer than it ever did.",
        result=f"{reachable} It grew through the last {grower.trend.points} readings.",
    )


_NOUNS = {
    Event.SAVED_FILE.value: "saved file",
    Event.ASYNC_SAVE.value: "asynchronous save",
    Event.LOG.value: "log record",
    Event.LOGGED_ERROR.value: "logged error",
    Event.CAUGHT.value: "caught exception",
    Event.TRACKER_CALL.value: "tracker call",
    Event.FIGURE.value: "written figure",
    Event.IMAGE.value: "written image",
    Event.OPTIMIZER.value: "new optimizer",
    Event.SCHEDULER.value: "new scheduler",
    Event.LOADER_ITERATOR.value: "new iterator of a loader",
    Event.THREAD.value: "started thread",
    Event.PROCESS.value: "started process",
    Event.FAILED_REQUEST.value: "request with an error",
    Event.DECODE_STEP.value: "decode step",
    Event.GRAPH_CAPTURE.value: "captured graph",
    Event.EXPLICIT_COLLECTION.value: "call of gc.collect()",
    Event.NEW_SHAPE.value: "new shape",
}
_PLURALS = {
    _NOUNS[Event.LOADER_ITERATOR.value]: "new iterators of a loader",
    _NOUNS[Event.FAILED_REQUEST.value]: "requests with an error",
    _NOUNS[Event.EXPLICIT_COLLECTION.value]: "calls of gc.collect()",
}
_INCIDENTAL_EVENTS = frozenset(
    {
        Event.LOG.value,
        Event.LOADER_ITERATOR.value,
        Event.THREAD.value,
        Event.EXPLICIT_COLLECTION.value,
        Event.SCHEDULER.value,
    }
)
"""They come with nearly everything, so that it tells nobody anything where they coincide."""


def event_growth(
    fit: EventFit, unit: str, compiled: str = "", locate: Callable[[str, int], str] = "{}:{}".format
) -> EventGrowth:
    """Return what something grows with, if its rate is per unit of work.

    Args:
        fit: That, as it was fitted.
        unit: The unit of work of its rate.
        compiled: Says what was compiled again and why.
        locate: Returns a line of a file as a person would write it.

    """
    rates, work = [_event_rate(rate, locate) for rate in fit.rates], _event_rate(fit.work, locate)
    if fit.is_by_event and all(rate.is_work for rate in rates):
        rates = [msgspec.structs.replace(rate, is_work=rate.event == unit) for rate in rates]
    alike = [counter for counter in fit.indistinct if counter.name not in {"step", "epoch", unit}]
    text = _by_event(rates, work, alike) if fit.is_by_event else _with_work(fit, alike)
    if compiled and any(rate.counter.name == Event.RECOMPILATION.value for rate in fit.rates):
        text = f"{text} {compiled}".strip()
    return EventGrowth(
        rates=rates,
        work=work,
        is_by_event=fit.is_by_event,
        indistinct=[_noun(counter.name) for counter in fit.indistinct],
        text=text,
    )


def recompiled(compilations: list[CompilationRecord], locate: Callable[[str, int], str]) -> str:
    """Return which function was compiled again most often, and why it was the last time;
    ``locate`` returns a line of a file as a person would write it.
    """
    again = [compilation for compilation in compilations if compilation.number]
    if not again:
        return ""
    counts = Counter((c.function, c.file, c.line) for c in again)
    (name, file, line), times = counts.most_common(1)[0]
    last = next(c for c in reversed(again) if (c.function, c.file) == (name, file))
    why = f", at last because of {clipped(last.reason, LONGEST_REASON)}" if last.reason else ""
    often = f"{plural(times, 'time')}{why}"
    return f"Compiled again most often was {name} ({locate(file, line)}): {often}."


def per_event(rate: EventRate) -> str:
    """Return ``18 MiB per save (31 saves)``; of work without the number."""
    text = f"{human_bytes(rate.bytes_each)} per {rate.noun}"
    return text if rate.is_work else f"{text} ({_many(rate.count, rate.noun)})"


def _event_rate(rate: CounterRate, locate: Callable[[str, int], str]) -> EventRate:
    place = rate.counter.place
    return EventRate(
        event=rate.counter.name,
        noun=_noun(rate.counter.name),
        is_work=rate.counter.is_work,
        bytes_each=rate.rate,
        count=round(rate.counter.total),
        share=rate.share,
        place=locate(*place) if place else "",
    )


def _noun(name: str) -> str:
    return _NOUNS.get(name, name.partition(":")[0])


def _many(count: float, noun: str) -> str:
    if noun in _PLURALS and round(count) != 1:
        return f"{human_count(round(count))} {_PLURALS[noun]}"
    return plural(count, noun)


def _several(noun: str) -> str:
    return _many(2, noun).partition(" ")[2]


def _by_event(rates: list[EventRate], work: EventRate, alike: list[Regressor]) -> str:
    tells_work = work.bytes_each > 0 or work.event != "minute"
    terms = [*rates, *([work] if tells_work and not any(rate.is_work for rate in rates) else [])]
    first = next((rate for rate in rates if not rate.is_work), rates[0])
    leading = first.noun
    what = _several(leading) + (f" of the loop at {first.place}" if first.place else "")
    text = f"It grows with {what}: {', '.join(map(per_event, terms))}."
    others = [_noun(counter.name) for counter in alike if counter.name not in _INCIDENTAL_EVENTS]
    if not others:
        return text
    return (
        f"{text} {listed([_several(noun) for noun in others]).capitalize()} came at the same "
        f"moments, so this run can't tell them from {_several(leading)}: one in which only every "
        f"second {leading} comes with {_with_article(others[0])} would."
    )


def _with_work(fit: EventFit, alike: list[Regressor]) -> str:
    """Return what happens at the same moments as the work that growth is measured by, if rare."""
    first = fit.rates[0].counter
    most = policy.MOST_SHARE * first.total if first.name == "step" else np.inf
    telling = {event.value for event in Event} - _INCIDENTAL_EVENTS
    others = [_noun(c.name) for c in alike if c.name in telling and c.total <= most]
    if not others or not first.is_work:
        return ""
    unit, several = _noun(first.name), listed([_several(noun) for noun in others])
    if first.name == "step":
        return (
            f"It may as well grow with {several}, which came evenly between readings: a run with "
            "half as many would tell."
        )
    return (
        f"{several.capitalize()} went with {_several(unit)}, so this run can't tell whether they "
        f"bring it: one in which only every second {unit} comes with {_with_article(others[0])} "
        "would."
    )


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def pinned_bytes(row: CensusRow) -> dict[str, int]:
    """Return the bytes per device, ``host`` included, that would go if the graphs were cut."""
    if not row.graph_nodes:
        return {}
    retained = {HOST: row.host_bytes, **row.device_bytes}
    for device, size in row.shared_bytes.items():
        retained[device] = retained.get(device, 0) + size
    if row.kind != "graph":
        tensors = [c for c in row.holds if c.type.endswith(("Tensor", "Parameter"))]
        if sum(content.bytes for content in tensors) < policy.MOST_SHARE * sum(retained.values()):
            return {}
        for content in tensors:
            device, own = _own_bytes(content)
            retained[device] = retained.get(device, 0) - own
    return {device: size for device, size in retained.items() if size > 0}


def _own_bytes(content: Content) -> tuple[str, int]:
    """Return the device of some tensors and the bytes of their values, by their commonest form."""
    form = _FORM.match(content.detail)
    if form is None:
        return HOST, 0
    device = HOST if form["device"] == "cpu" else form["device"]
    bits = re.search(r"\d+", form["type"])
    item = max(int(bits.group()) // 8, 1) if bits else 1
    sizes = [int(size) for size in form["shape"].split(",") if size.strip()]
    return device, content.count * item * math.prod(sizes)


def describe_graphs(nodes: int, pinned: dict[str, int]) -> str:
    """Return ``It keeps 700 autograd nodes alive, which pin 19 MiB on the host.`` or nothing."""
    if not nodes:
        return ""
    places = [
        f"{human_bytes(size)} on {'the host' if device == HOST else device}"
        for device, size in pinned.items()
    ]
    pins = f", which pin {' and '.join(places)}" if places else ""
    return f"It keeps {plural(nodes, 'autograd node')} alive{pins}."


def to_finding(
    kind: str,
    title: str,
    text: str,
    remedy: Remedy,
    *,
    severity: Severity,
    trend: Trend | None = None,
    share: float = 0.0,
    total_bytes: float = 0.0,
    device: str = "host",
    fed_at: list[str] | None = None,
    falsifier: tuple[str, str | None] = ("", None),
    subject: str = "",
    growth: str = "across",
    known: Recognised | None = None,
) -> Finding:
    """Return a finding, not ranked yet; ``subject`` tells two of one kind apart."""
    return Finding(
        rank=0,
        kind=kind,
        title=title,
        text=text,
        growth=growth,
        unit=trend.unit if trend else "",
        bytes_per_unit=trend.bytes_per_unit if trend else 0.0,
        interval=trend.interval if trend else (0.0, 0.0),
        readings=trend.points if trend else 0,
        share=min(max(share, 0.0), 1.0),
        total_bytes=max(int(total_bytes), 0),
        device=device,
        fed_at=fed_at or [],
        severity=severity,
        signature=finding_signature(kind, device, subject),
        remedy=remedy,
        known=known,
        falsifier=Falsifier(text=falsifier[0], result=falsifier[1]) if falsifier[0] else None,
    )


def finding_signature(kind: str, device: str, subject: str = "") -> str:
    """Return what identifies a finding between runs."""
    text = f"finding\n{kind}\n{device}\n{subject}"
    return short_hash(text)


def short_hash(text: str) -> str:
    """Return a name of twelve digits for a text."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]
