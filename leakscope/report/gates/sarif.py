"""A check as SARIF 2.1.0, which GitHub's code scanning and others read, with a rule for each kind
of diagnosis.

The fingerprint of a result is made of its name, kind and type, so that an alert stays the same one
when lines move or a variable that leads to it is renamed. GitHub matches alerts by
``primaryLocationLineHash`` alone and would make it from the line's text.

What is excused is left out: SARIF has a property for it, ``suppressions``, but code scanning passes
it over and opens an alert all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from leakscope.model.documents import Check, Checked, CheckReason, Outcome
from leakscope.model.report import Severity
from leakscope.model.text import one_line
from leakscope.report.text import humane_rate
from leakscope.report.words import known_line

DOCUMENTATION = "docs/diagnoses.md"


@dataclass(frozen=True)
class Rule:
    """A kind of diagnosis."""

    id: str
    title: str
    help: str

    @property
    def name(self) -> str:
        """The id as SARIF wants names: ``GrowingContainer``."""
        return "".join(part.capitalize() for part in self.id.replace("_", "-").split("-"))


_RULES = (
    Rule(
        "growing-container",
        "A container grows for good",
        "The same moment of the same phase finds it larger each time, and nothing gives it back. "
        "Empty it, bound it, or keep less in it.",
    ),
    Rule(
        "growing-within-phase",
        "A container makes the peak of a phase",
        "It climbs while a phase lasts and is released only when the phase ends. Reduce what is "
        "kept per batch, or reduce each batch at once.",
    ),
    Rule(
        "kept-graph",
        "Autograd graphs are kept",
        "A kept tensor keeps the graph that computed it, and the activations in it. Store "
        "tensor.detach() or tensor.item(), or compute under torch.no_grad().",
    ),
    Rule(
        "unexplained",
        "Memory grows outside everything that has a name",
        "Neither Python objects nor the allocators explain it: a native library may hold it.",
    ),
    Rule(
        "allocator_slack",
        "Freed memory stays in the C heap",
        "The program has freed it, and glibc keeps it. Lower MALLOC_ARENA_MAX or trim the heap.",
    ),
    Rule(
        "garbage",
        "Memory waits in reference cycles for the collector",
        "Objects that refer to each other in a circle are freed only by the collector. Break the "
        "circle, or collect more often.",
    ),
    Rule(
        "gradient_cycle",
        "Parameters and gradients keep each other alive",
        "backward(create_graph=True) makes a circle that the collector can't see. Use "
        "torch.autograd.grad.",
    ),
    Rule(
        "autograd_loop",
        "A hook and the graph it belongs to keep each other alive",
        "Part of the loop is in C++, where the collector can't see it. Remove the hook, or let it "
        "keep no tensor that has a graph.",
    ),
    Rule(
        "native_held",
        "Objects are held by native code alone",
        "No Python name reaches them: a C++ queue, a registry or an extension holds them.",
    ),
    Rule(
        "deep_graph",
        "A graph is too deep to be walked",
        "A state that is carried on with its graph keeps thousands of nodes in a row. Detach it "
        "between steps.",
    ),
    Rule(
        "registry",
        "A registry has ever more entries",
        "What is registered with the interpreter or a library stays until it is taken back. "
        "Register once, or take back what each round adds.",
    ),
    Rule(
        "leaked_references",
        "Native code leaks references",
        "An extension takes a reference to each object and never gives it back, or keeps the "
        "objects in a structure of its own that is never emptied.",
    ),
    Rule(
        "numbered_names",
        "New names are made all along",
        "Each keeps what it refers to until the program ends. Assign to the same name, or use a "
        "container with a bound.",
    ),
    Rule(
        "collector_off",
        "The garbage collector is switched off",
        "Cycles are never freed while it is off. Switch it on, or collect by hand.",
    ),
    Rule(
        "collector_frozen",
        "The garbage collector is frozen",
        "What gc.freeze() has seen is never looked at again. Call gc.unfreeze().",
    ),
    Rule(
        "collector_time",
        "The collector takes much of the time",
        "Each full collection visits every container object. Freeze what stays after the set-up, "
        "collect less often, or keep arrays instead of many small objects.",
    ),
    Rule(
        "cleaning_calls",
        "Calls that clean take much of the time",
        "The report has what each call of gc.collect() or empty_cache() takes and what it frees. "
        "Leave out those that free next to nothing.",
    ),
    Rule(
        "children",
        "Child processes grow",
        "The growth is in other processes than the one that was recorded.",
    ),
    Rule(
        "tree_grows",
        "The process and its children take ever more",
        "Seen from outside, where nothing has a name: `leakscope run` tells what grows.",
    ),
    Rule(
        "shared_memory",
        "Shared memory piles up",
        "Named segments outlive their processes: unlink them, or let the manager do so. What is "
        "sent stays until it is received, and what a descriptor keeps until that is closed.",
    ),
    Rule(
        "shared_descriptors",
        "File descriptors of shared memory pile up",
        "Each tensor that a worker sends holds one while it lives. Let go of batches, or send "
        "fewer tensors.",
    ),
    Rule(
        "worker_processes",
        "Worker processes pile up",
        "What keeps DataLoaders or pools keeps their processes. Keep one of them.",
    ),
    Rule(
        "workers_died",
        "Worker processes died",
        "What they held ended with them: look at what ended them.",
    ),
    Rule(
        "copy_on_write",
        "Forked workers copy what they look at",
        "Looking at a Python object writes its reference count, which copies the page. Keep many "
        "small objects in one array.",
    ),
    Rule(
        "open_figures",
        "More and more open figures",
        "pyplot keeps every figure until it is closed: plt.close(figure).",
    ),
    Rule(
        "device_leak",
        "Live memory without a name grows on a device",
        "Tensors are alive that no name reaches: a graph, a hook or native code holds them.",
    ),
    Rule(
        "device_cache",
        "The cache of a device's allocator grows",
        "The memory is free and kept for the next request. Shapes that vary make it grow.",
    ),
    Rule(
        "fragmentation",
        "A device's memory is fragmented",
        "Free blocks lie between used ones and fit nothing. Try expandable segments.",
    ),
    Rule(
        "outside_allocator",
        "Device memory outside torch's allocator grows",
        "Libraries, contexts and other processes take it.",
    ),
    Rule(
        "pending_free",
        "Freed device memory waits for another stream",
        "A block that another stream uses is free only when that stream has passed.",
    ),
    Rule(
        "private_pools",
        "Private pools of device memory grow",
        "CUDA graphs and MemPool keep what they have reserved.",
    ),
    Rule(
        "pinned_host",
        "Page-locked host memory grows",
        "Its allocator keeps what was freed, in powers of two.",
    ),
    Rule(
        "tiny_blocks",
        "Tiny tensors pile up on a device",
        "Each takes a block of 512 bytes: keep numbers, not tensors.",
    ),
    Rule(
        "allocation_retries",
        "A device's allocator ran short of memory",
        "It emptied its cache and asked again, which makes steps slow. Leave the device some room.",
    ),
    Rule(
        "worker_copies",
        "Each worker has a copy of its own",
        "Workers that aren't forked are sent what they need. Send less, or hold it as arrays.",
    ),
    Rule(
        "compiled_code",
        "A function is compiled again and again",
        "Each version is kept until the limit of its code object: see which guard fails.",
    ),
    Rule(
        "open_files",
        "More and more open files",
        "A process may hold some thousand descriptors. Open files with `with`.",
    ),
    Rule(
        "threads",
        "More and more threads",
        "Each keeps a stack and often an arena of its own. End them, or reuse one executor.",
    ),
    Rule(
        "tasks",
        "Tasks of asyncio pile up",
        "Each keeps its coroutine and all that this holds. Cancel and await them, or use a "
        "TaskGroup.",
    ),
    Rule(
        "processes",
        "More and more child processes",
        "Each is a whole Python process. Join what is started, keep one DataLoader.",
    ),
    Rule(
        "outlives_iteration",
        "Variables of the loop live into the next step",
        "What they hold stays during the next forward pass. Write `del` after the last use.",
    ),
    Rule(
        "gradients_through_forward",
        "Gradients stay through the next forward pass",
        "Both lie in memory where it is highest. Call zero_grad() before the forward pass.",
    ),
    Rule(
        "gradients_kept_as_zeros",
        "Gradients are filled with zeros instead of dropped",
        "zero_grad(set_to_none=True) frees them until the next backward pass.",
    ),
    Rule(
        "gradients_never_cleared",
        "Gradients are never cleared",
        "Each step adds to those of all steps before. Call zero_grad() before the forward pass.",
    ),
    Rule(
        "gradients_in_validation",
        "Gradients are in memory during a validation that makes the peak",
        "Nothing there reads them. Drop them after the last step of the epoch.",
    ),
    Rule(
        "frozen_gradients",
        "Frozen parameters keep their gradients",
        "Set `parameter.grad = None` where `requires_grad` is switched off.",
    ),
    Rule("out_of_memory", "Memory ran out", "The program ended because memory ran out."),
    Rule(
        "out_of_memory_survived",
        "Memory ran out and the program went on",
        "It caught the error: look at what was largest then.",
    ),
    Rule(
        "killed_near_the_limit",
        "The program was killed with memory nearly used up",
        "No kill by the kernel for memory was counted: look at the kernel's log.",
    ),
)
_BY_ID = {rule.id: rule for rule in _RULES}
KINDS = tuple(_BY_ID)
"""Every kind of diagnosis that has a rule."""


@dataclass(frozen=True)
class SourceLocation:
    """A line of a file; line 1 where none is known."""

    file: str
    line: int = 1

    @property
    def is_in_repository(self) -> bool:
        """Whether the path is relative to the repository's root and stays in it."""
        return bool(self.file) and not self.file.startswith(("/", "..", "<"))

    @property
    def uri(self) -> str:
        """The path as a reference of RFC 3986; what no file system could show is spelled out."""
        path = quote(one_line(self.file), safe="/-._~")
        return path if self.is_in_repository else f"file://{path}"


def to_location(text: str) -> SourceLocation:
    """Return the place that ``src/train.py:12`` names."""
    file, _, line = text.rpartition(":")
    if file and line.isascii() and line.isdigit() and len(line) < 10:
        return SourceLocation(file, max(int(line), 1))
    return SourceLocation(text)


def location_of(growth: Checked) -> SourceLocation | None:
    """Return the line to look at first; None where none is known."""
    return to_location(growth.place) if growth.place else None


def rate_of(growth: Checked) -> str:
    """Return ``412 MiB per validation``; empty where nothing was measured per unit of work."""
    return humane_rate(growth.bytes_per_unit, growth.unit) if growth.bytes_per_unit > 0 else ""


def why_of(growth: Checked) -> str:
    """Return why it fails or doesn't, with the reason that people gave."""
    return f"{growth.why} {growth.excuse}".strip()


def account_of(growth: Checked) -> list[str]:
    """Return what grows, why it fails or doesn't, and what to change: a line each."""
    title = [] if growth.path else [f"{growth.name}."]
    parts = (*title, growth.sentence, known_of(growth), why_of(growth), growth.remedy)
    return [text for text in parts if text]


def known_of(growth: Checked) -> str:
    """Return what is known of it, with the address of the source; empty if nothing is."""
    return known_line(growth.recognised) if growth.recognised else ""


def rule_of(kind: str) -> Rule:
    """Return what is known of a kind of diagnosis; of one that has no rule yet, its own words."""
    known = _BY_ID.get(kind)
    if known is not None:
        return known
    title = kind.replace("_", " ").replace("-", " ").strip().capitalize() or "Memory"
    return Rule(kind or "memory", title, f"See {DOCUMENTATION}.")


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.NOTE: "warning"}


def render_check_sarif(check: Check, *, version: str = "", otherwise: str = "") -> str:
    """Return the check as a SARIF file; notes and what is excused are left out.

    Code scanning takes no result without a file: ``otherwise`` is shown for what has no place of
    its own.
    """
    grave = [growth for growth in check.growths if growth.standing is not CheckReason.NOTE]
    failed = [
        (growth, likeness)
        for growth, likeness in zip(grave, _likenesses(grave), strict=True)
        if growth.standing is CheckReason.FAILED
    ]
    rules = list(dict.fromkeys(rule_of(growth.rule) for growth, _ in failed))
    run = {
        "tool": {"driver": _driver(rules, version)},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        "results": [_result(growth, likeness, rules, otherwise) for growth, likeness in failed],
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(check)],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _driver(rules: list[Rule], version: str) -> dict[str, Any]:
    driver = {"name": "leakscope", "rules": [_rule(rule) for rule in rules]}
    return {**driver, "semanticVersion": version} if version else driver


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": one_line(rule.id),
        "name": one_line(rule.name),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.help},
        "help": {"text": rule.help},
        "properties": {"tags": ["memory", "performance"], "precision": "high"},
    }


def _result(growth: Checked, likeness: str, rules: list[Rule], otherwise: str) -> dict[str, Any]:
    rule = rule_of(growth.rule)
    places = [to_location(text) for text in growth.places[:5]]
    first = location_of(growth) or (SourceLocation(otherwise) if otherwise else None)
    others = [place for place in places if place != first]
    result: dict[str, Any] = {
        "ruleId": one_line(rule.id),
        "ruleIndex": rules.index(rule),
        "level": _LEVELS[growth.severity],
        "message": {"text": _message(growth)},
        "locations": [_location(first)] if first else [],
        "partialFingerprints": {
            "primaryLocationLineHash": likeness,
            "leakscopeLikeness/v1": likeness,
            "leakscopeSignature/v1": _fingerprint(growth, growth.signature),
        },
        "properties": {"standing": growth.standing.value, **_known(growth)},
    }
    if others:
        result["relatedLocations"] = [_location(place) for place in others]
    return result


def _known(growth: Checked) -> dict[str, Any]:
    known = growth.recognised
    if known is None:
        return {}
    found = {"id": known.id, "nature": known.nature.value, "library": known.library}
    return {"knownCulprit": {**found, "version": known.version, "link": one_line(known.link)}}


def _message(growth: Checked) -> str:
    return "\n".join(map(one_line, account_of(growth)))


def _likenesses(grave: Sequence[Checked]) -> list[str]:
    """Return a fingerprint for each that lasts while it is called the same.

    Those that are alike in it have their signatures too: an alert that somebody dismissed must not
    be taken for another one.
    """
    found = [
        _fingerprint(growth, _digest(growth.name, growth.kind, growth.type)) for growth in grave
    ]
    counts = Counter(found)
    return [
        text
        if counts[text] == 1
        else _fingerprint(growth, _digest(growth.name, growth.kind, growth.type, growth.signature))
        for growth, text in zip(grave, found, strict=True)
    ]


def _digest(*parts: str) -> str:
    text = "\n".join(map(one_line, parts))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def _fingerprint(growth: Checked, identity: str) -> str:
    where = f"{growth.device}-workers" if growth.in_workers else growth.device
    return one_line(f"{identity}-{growth.growth}-{where}:1")


def _location(place: SourceLocation) -> dict[str, Any]:
    artifact = {"uri": place.uri}
    if place.is_in_repository:
        artifact["uriBaseId"] = ROOT
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": place.line}}}


def _invocation(check: Check) -> dict[str, Any]:
    remarks = [*check.remarks]
    if check.outcome is Outcome.INCONCLUSIVE:
        remarks += [check.headline, *check.missing]
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if remarks:
        invocation["toolExecutionNotifications"] = [
            {"level": "warning", "message": {"text": one_line(text)}} for text in remarks
        ]
    return invocation
