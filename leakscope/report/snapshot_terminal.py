"""A snapshot of the CUDA allocator, or several, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.model.explanation import (
    ClassRow,
    DeviceComparison,
    DeviceExplanation,
    DeviceFinding,
    DeviceGrowth,
    Explanation,
    SiteRow,
    SnapshotComparison,
)
from leakscope.model.layout import Paper, spaced
from leakscope.model.text import clipped, one_line, plural
from leakscope.report import words
from leakscope.report.terminal import advice_lines
from leakscope.report.text import humane_bytes, humane_duration, humane_share, sparkline

SHOWN_SITES = 8
SHOWN_GROWTH = 6
_MARKS = {"leak": "✗", "clean": "✓", "inconclusive": "!"}


def render_snapshot_text(
    document: Explanation | SnapshotComparison, *, width: int = 100, color: bool = False
) -> str:
    """Return a snapshot explained, or several compared, for a terminal."""
    paper = Paper(width, color)
    if isinstance(document, Explanation):
        lines = _explained(document, paper)
    else:
        lines = _side_by_side(document, paper)
    return "\n".join(lines) + "\n"


def _explained(explanation: Explanation, paper: Paper) -> list[str]:
    kind, label = words.verdict_of(explanation)
    lines = paper.titled(f"{_MARKS[kind]} {label}", kind, explanation.headline)
    version = f" · torch {explanation.version}" if explanation.version else ""
    entries = sum(d.trace.entries for d in explanation.devices if d.trace is not None)
    history = f"{plural(entries, 'entry')} of history" if entries else "no history"
    lines.append(paper.clip(f"{one_line(explanation.name)}{version} · {history}", "  "))
    for finding in explanation.findings:
        lines += _finding(finding, paper)
    for device in words.devices_in_order(explanation):
        lines += ["", *_device(device, paper)]
    return lines + spaced([line for note in explanation.notes for line in paper.wrap(f"! {note}")])


def _side_by_side(comparison: SnapshotComparison, paper: Paper) -> list[str]:
    kind, label = words.comparison_verdict(comparison)
    lines = paper.titled(f"{_MARKS[kind]} {label}", kind, comparison.headline)
    lines += [""]
    for number, name in enumerate(comparison.names):
        text = f"{number + 1}. {name}: {comparison.headlines[number]}"
        lines += paper.wrap(text, "  ")
    for device in comparison.devices:
        lines += ["", *_compared(device, comparison.names, paper)]
    if len(comparison.names) > 1 and comparison.devices:
        ranked = ", ".join(comparison.names[number] for number in comparison.by_stuck)
        lines += ["", *paper.wrap(f"by bytes stuck in holes, worst first: {ranked}")]
    return lines + spaced([line for note in comparison.notes for line in paper.wrap(f"! {note}")])


def _device(device: DeviceExplanation, paper: Paper) -> list[str]:
    shown = device.figures if device.fault is None else device.fault.figures
    title = paper.paint(f"cuda:{device.device}", "name")
    lines = [f"{title}, {words.subject_words(device)}"]
    *sums, largest = map(humane_bytes, words.sums_of(shown))
    terms = [f"{size} {name.lower()}" for size, name in zip(sums, words.SUMS, strict=False)]
    terms.append(f"largest free block {largest}")
    if shown.pending:
        terms.append(f"{humane_bytes(shown.pending)} pending free")
    lines += paper.wrap(" · ".join(terms), "  ")
    if fault := device.fault:
        lines += ["", *paper.wrap(fault.sentence, "  ")]
        if fault.operation:
            lines += [paper.clip(f"requested by {fault.operation} at {fault.place}", "  ")]
        lines += ["  what would have made it fit:", *advice_lines(fault.fits_if, paper)]
    lines += _curve(device, paper)
    lines += _classes(device.classes, paper)
    lines += _sites(device.sites, paper)
    lines += _peak(device, paper)
    lines += _phases(device, paper)
    if device.fault is None and device.settings:
        lines += ["", *paper.wrap(device.slack_sentence, "  ")]
        lines += advice_lines(device.settings, paper)
    for finding in device.findings:
        lines += _finding(finding, paper)
    return lines


def _curve(device: DeviceExplanation, paper: Paper) -> list[str]:
    if device.course is None:
        return []
    values = [live for _, live in device.course.live]
    first, last, peak = map(humane_bytes, (values[0], values[-1], max(values)))
    ends = f"{first} → {last}, peak {peak}"
    room = max(10, min(60, paper.width - len(ends) - 10))
    return [paper.clip(f"live {sparkline(values, room)} {ends}", "  ")]


def _classes(rows: Sequence[ClassRow], paper: Paper) -> list[str]:
    if not rows:
        return []
    lines = [
        "",
        f"  {'live, by what it is for':<28}{'bytes':>10}{'blocks':>8}{'share':>7}  known by",
    ]
    for row in rows:
        text = (
            f"{words.BLOCK_CLASSES[row.kind]:<28}{humane_bytes(row.bytes):>10}{row.count:>8,}"
            f"{humane_share(row.share):>7}  {row.evidence}"
        )
        text, room = one_line(text), paper.width - 2
        lines.append("  " + (text if len(text) <= room else text[: max(0, room - 1)] + "…"))
    return lines


def _sites(rows: Sequence[SiteRow], paper: Paper) -> list[str]:
    parts = [row for row in rows if row.function][:SHOWN_SITES]
    if not parts:
        return []
    lines = ["", f"  {'live, by the line that allocated it':<38}"]
    for row in parts:
        head = f"{humane_bytes(row.bytes):>10}{row.count:>8,}{humane_share(row.share):>7}  "
        name = f"{row.place} {row.function}" + (f" › {row.operation}" if row.operation else "")
        lines.append("  " + head + _tail(name, max(16, paper.width - len(head) - 2)))
    return lines


def _peak(device: DeviceExplanation, paper: Paper) -> list[str]:
    peak = device.peak
    if peak is None:
        return []
    when = f" after {humane_duration(peak.time_s)}" if peak.time_s is not None else ""
    phase = f" in {peak.phase}" if peak.phase else ""
    most = ", ".join(
        f"{words.BLOCK_CLASSES[row.kind].lower()} {humane_bytes(row.bytes)}"
        for row in peak.classes[:3]
    )
    text = f"peak {humane_bytes(peak.live_bytes)}{when}{phase}: {most}"
    return ["", *paper.wrap(text, "  ")]


def _phases(device: DeviceExplanation, paper: Paper) -> list[str]:
    if len(device.phases) < 2:
        return []
    lines = ["", f"  {'phase':<24}{'stretches':>10}{'allocated':>11}{'peak':>10}{'kept':>11}"]
    for row in device.phases:
        text = (
            f"{clipped(row.phase, 23):<24}{row.stretches:>10,}"
            f"{humane_bytes(row.allocated_bytes):>11}{humane_bytes(row.peak_bytes):>10}"
            f"{humane_bytes(row.kept_bytes, signed=True):>11}"
        )
        lines.append(paper.clip(text, "  "))
    return lines


def _finding(finding: DeviceFinding, paper: Paper) -> list[str]:
    severity = finding.severity.value
    title = clipped(finding.title, paper.width - len(severity) - 4)
    lines = ["", f"  {paper.paint(f'{severity}:', severity)} {title}"]
    lines += paper.wrap(finding.text, "    ")
    return lines + (paper.wrap(f"→ {finding.remedy}", "    ") if finding.remedy else [])


def _compared(device: DeviceComparison, names: Sequence[str], paper: Paper) -> list[str]:
    lines = [f"{paper.paint(f'cuda:{device.device}', 'name')}"]
    lines += paper.wrap(device.sentence, "  ")
    heads = "".join(f"{f'{number + 1}.':>12}" for number in range(len(names)))
    lines += ["", f"  {'':<28}{heads}"]
    sums = zip(*map(words.sums_of, device.figures), strict=True)
    for label, amounts in zip(words.SUMS, sums, strict=True):
        lines.append(_amounts(label.lower(), amounts, paper))
    if any(peak is not None for peak in device.peaks):
        lines.append(_amounts("peak", device.peaks, paper))
    for title, rows in (
        ("by what it is for", device.classes),
        ("by the line that allocated it", device.sites),
        ("by size of block", device.sizes),
    ):
        lines += _growth(title, [row for row in rows if row.change][:SHOWN_GROWTH], paper)
    return lines


def _growth(title: str, rows: Sequence[DeviceGrowth], paper: Paper) -> list[str]:
    lines = ["", f"  {title}"] if rows else []
    for row in rows:
        change = f"{humane_bytes(row.change, signed=True):>12}"
        size = f" of {humane_bytes(row.size)}" if row.size is not None else ""
        counts = f"{row.counts[0]:,} → {row.counts[-1]:,} blocks{size}"
        head = f"{change}  {counts:<34}"
        lines.append(f"  {head}{_tail(row.name, max(16, paper.width - len(head) - 2))}")
    return lines


def _amounts(label: str, amounts: Sequence[int | None], paper: Paper) -> str:
    cells = "".join(f"{humane_bytes(amount):>12}" for amount in amounts)
    return paper.clip(f"{label:<28}{cells}", "  ")


def _tail(text: str, width: int) -> str:
    """Return one line, its beginning left out where it is too long: the end of a path says most."""
    text = one_line(text)
    return text if len(text) <= width else "…" + text[len(text) - max(0, width - 1) :]
