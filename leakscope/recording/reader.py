"""The reader: makes a run of whatever a run directory still holds, or says which processes it
holds.

Bad input ends in a note of what was lost, not in an exception; only a path without anything
readable and a newer format are refused. Nothing in a recording is executed, opened or followed.

Of many ranks not all recordings fit into memory at once; each is read by itself. Recordings of
several directories, ranks of one training, can be merged in one.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import msgspec

from leakscope.model.census import Census
from leakscope.model.device import BlockState
from leakscope.model.errors import LeakscopeError, NewerSchemaError, NoRunError, UnwritableError
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    BoundaryRecord,
    CensusRecord,
    CleaningCallsRecord,
    CleanupRecord,
    CompilationRecord,
    CompiledCodeRecord,
    DeviceSnapshotRecord,
    EndRecord,
    ErrorRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    ProcessEndRecord,
    Record,
    RegistryEntriesRecord,
    RunManifest,
    SnapshotRecord,
    SourceRecord,
)
from leakscope.model.run import Damage, Measurement, Recording, Run
from leakscope.model.text import plural
from leakscope.recording.directory import (
    MANIFEST,
    OUTCOME,
    RunDirectory,
    find_run,
    journals,
    rank_outcomes,
)
from leakscope.recording.following import goes_on, is_tagged, tags_of
from leakscope.recording.format import (
    MAX_PAYLOAD,
    UNREADABLE,
    Gap,
    JournalFrame,
    UnknownRecordError,
    decode_manifest,
    decode_record,
    encode,
    read_frames,
)
from leakscope.recording.writer import unused_path

Outcome = dict[str, str | int]
_RECURRING = ("path", "name", "parent", "owner", "type", "kind", "role")
_HEADER = tags_of(HeaderRecord)
_MAX_DAMAGE = 100
"""Notes kept per file; a file of noise would otherwise fill the report."""


def open_run(
    path: str | Path, only: Sequence[Path] | None = None, *, headers_only: bool = False
) -> Run:
    """Return the run in a directory, or of the directory that a file lies in.

    Args:
        path: the directory, or a file in it.
        only: journals to read, if not all of them.
        headers_only: read who wrote each recording, in little memory, and nothing of what was
            measured.

    Raises:
        NoRunError: there is no run, or nothing of it can be read.
        NewerSchemaError: it was written by a newer leakscope.

    """
    folder = find_run(Path(path))
    damage: list[Damage] = []
    manifest = _read_manifest(folder / MANIFEST, damage)
    drafts = []
    with _collector_paused():
        for journal in journals(folder) if only is None else only:
            draft = _read_journal(journal, headers_only=headers_only)
            if draft.is_readable:
                drafts.append(draft)
            else:
                damage.extend(draft.damage)
    recordings = [draft.finish() for draft in _without_copies(drafts, damage)]
    if not recordings:
        raise NoRunError(_nothing_readable(folder, damage), slug="no-run")
    recordings.sort(key=lambda r: (not r.header.is_primary, r.header.rank, r.header.started))
    outcome = _read_outcome(folder / OUTCOME, damage)
    outcomes = _read_outcomes(folder, damage)
    first = recordings[0].header
    outcome = outcome or outcomes.get((first.attempt, first.rank), {})
    for recording in recordings if not outcome else ():
        recording.goes_on = goes_on(recording)
    return Run(folder, manifest, recordings, damage, outcome, outcomes)


def _without_copies(drafts: list[_RecordingDraft], damage: list[Damage]) -> list[_RecordingDraft]:
    """Return the recordings without copies of others, which would pass for further processes.

    A process writes one header a recording, with its number and the moment; of recordings with the
    same header the longest counts, a copy having been made before the end or after it.
    """
    chosen: dict[bytes, _RecordingDraft] = {}
    others = [draft for draft in drafts if not draft.identity]
    for draft in sorted(drafts, key=lambda draft: (-draft.length, len(draft.file), draft.file)):
        if draft.identity and chosen.setdefault(draft.identity, draft) is not draft:
            kept = chosen[draft.identity]
            damage.append(Damage(draft.file, 0, f"passed over: a copy of {kept.file}", is_gap=True))
    return others + list(chosen.values())


@contextmanager
def _collector_paused() -> Iterator[None]:
    # Decoding only allocates: the collector would search the growing run over and over in vain,
    # which makes up two thirds of the time to read a long one.
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_manifest(path: Path, damage: list[Damage]) -> RunManifest:
    try:
        return decode_manifest(_read_bounded(path))
    except NewerSchemaError as fault:
        raise NewerSchemaError(f"{path.parent}: {fault}", slug=fault.slug) from fault
    except FileNotFoundError:
        damage.append(Damage(path.name, 0, "the manifest is missing"))
    except (OSError, *UNREADABLE) as fault:
        damage.append(Damage(path.name, 0, f"the manifest can't be read: {fault}"))
    return RunManifest()


def _read_outcome(path: Path, damage: list[Damage]) -> Outcome:
    try:
        return msgspec.json.decode(_read_bounded(path), type=Outcome)
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE) as fault:
        damage.append(Damage(path.name, 0, f"the outcome can't be read: {fault}"))
        return {}


def _read_outcomes(folder: Path, damage: list[Damage]) -> dict[tuple[int, int], Outcome]:
    """Return what supervisors of other ranks saw, by attempt and rank."""
    found: dict[tuple[int, int], Outcome] = {}
    for path in rank_outcomes(folder):
        outcome = _read_outcome(path, damage)
        attempt, rank = outcome.get("attempt", 0), outcome.get("rank")
        if isinstance(attempt, int) and isinstance(rank, int):
            found[attempt, rank] = outcome
    return found


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as stream:
        # A buffer of all that may be needed would be made first, however little there is.
        return stream.read(min(MAX_PAYLOAD, os.fstat(stream.fileno()).st_size))


def _nothing_readable(folder: Path, damage: list[Damage]) -> str:
    if not journals(folder):
        return (
            f"{folder} holds a manifest but no recording: the program ended before anything was "
            "measured. Record again."
        )
    causes = "; ".join(f"{item.file}: {item.reason}" for item in damage[:3])
    return f"Nothing in {folder} can be read ({causes}). Record again."


def _read_journal(path: Path, *, headers_only: bool) -> _RecordingDraft:
    draft = _RecordingDraft(path.name)
    try:
        with path.open("rb", buffering=0) as stream:
            for piece in read_frames(stream):
                if isinstance(piece, Gap):
                    reason = f"{piece.reason}; {plural(piece.length, 'byte')} skipped"
                    draft.lose(piece.offset, reason, is_gap=not piece.is_cut_off)
                elif headers_only and not is_tagged(piece.payload, _HEADER):
                    draft.is_readable = True
                else:
                    draft.add(piece)
    except NewerSchemaError as fault:
        raise NewerSchemaError(f"{path.parent}: {fault}", slug=fault.slug) from fault
    except OSError as fault:
        draft.lose(0, f"the file can't be read: {fault.strerror}")
    if not draft.is_readable and not draft.damage:
        draft.lose(0, "the file is empty")
    return draft


class _RecordingDraft:
    """A recording while its journal is read."""

    def __init__(self, file: str) -> None:
        self.is_readable = False
        self.file = file
        self._lost = 0
        self._header: HeaderRecord | None = None
        self._recording = Recording(HeaderRecord())
        self._boundaries: list[BoundaryRecord] = []
        self._censuses: dict[int, Census] = {}
        self._devices: dict[int, tuple[DeviceSnapshotRecord, ...]] = {}
        self._shared: dict[Hashable, Hashable] = {}
        self._gathered: dict[type, list[Any]] = {
            AllocationRecord: self._recording.allocations,
            NativeAllocationsRecord: self._recording.native_allocations,
            CleanupRecord: self._recording.cleanups,
            CleaningCallsRecord: self._recording.cleaning_calls,
            RegistryEntriesRecord: self._recording.registry_entries,
            ErrorRecord: self._recording.errors,
            NoteRecord: self._recording.notes,
            OutOfMemoryRecord: self._recording.shortages,
            SnapshotRecord: self._recording.snapshots,
            ProcessEndRecord: self._recording.process_ends,
            CompilationRecord: self._recording.compilations,
        }

    @property
    def damage(self) -> list[Damage]:
        """What could not be read so far."""
        return self._recording.damage

    @property
    def identity(self) -> bytes:
        """The first header, which no other recording has; empty where there is none."""
        return encode(self._header) if self._header is not None else b""

    @property
    def length(self) -> int:
        """How many boundaries were read."""
        return len(self._boundaries)

    def add(self, frame: JournalFrame) -> None:
        """Take in the record of a frame."""
        try:
            record = decode_record(frame.payload)
        except UnknownRecordError as fault:
            self.lose(frame.offset, f"a record of a kind that is unknown here was skipped: {fault}")
        except UNREADABLE as fault:
            self.lose(frame.offset, f"a record can't be understood: {fault}")
        else:
            self.is_readable = True
            self._place(record)

    def lose(self, offset: int, reason: str, *, is_gap: bool = True) -> None:
        """Note that something could not be read."""
        self._lost += 1
        if self._lost <= _MAX_DAMAGE:
            self.damage.append(Damage(self.file, offset, reason, is_gap))

    def finish(self) -> Recording:
        """Return the recording; censuses go to the boundaries they were taken at."""
        if self._header is None:
            self.lose(0, "the first record, which says what process wrote this, is missing")
        # They lie in any order in a journal that was put together from pieces.
        self._boundaries.sort(key=lambda record: record.boundary.index)
        self._recording.measurements = [
            Measurement(
                record.boundary,
                record.gauges,
                self._censuses.pop(record.boundary.index, None),
                self._devices.pop(record.boundary.index, ()),
                events,
            )
            for record, events in zip(self._boundaries, self._event_counts(), strict=True)
        ]
        for index in self._censuses:
            self.lose(0, f"the census at boundary {index} can't be used: its boundary is missing")
        if self._lost > _MAX_DAMAGE:
            self.damage.append(
                Damage(self.file, 0, f"and {self._lost - _MAX_DAMAGE} more", is_gap=True)
            )
        return self._recording

    def _event_counts(self) -> Iterator[dict[str, int]]:
        """Yield how often each event had happened by each boundary: a record has what changed."""
        counts: dict[str, int] = {}
        for record in self._boundaries:
            if record.events:
                counts = counts | record.events
            yield counts

    def _place(self, record: Record) -> None:
        recording = self._recording
        gathered = self._gathered.get(type(record))
        if gathered is not None:
            gathered.append(record)
        match record:
            case BoundaryRecord():
                self._boundaries.append(record)
            case CensusRecord():
                self._share_names(record.census)
                self._censuses[record.boundary] = record.census
            case DeviceSnapshotRecord():
                others = self._devices.get(record.boundary, ())
                self._devices[record.boundary] = (*others, record)
            case BlockListRecord():
                self._keep_blocks(record)
            case SourceRecord():
                recording.sources[record.path] = record.text
                recording.titles |= {record.path: record.title} if record.title else {}
            case OverheadRecord():
                recording.overhead = record
            case CompiledCodeRecord():
                recording.compiled_code = record
            case (
                OutOfMemoryRecord(census=Census() as census)
                | SnapshotRecord(census=Census() as census)
            ):
                self._share_names(census)
            case EndRecord():
                recording.end = record
                recording.notes += [_CUT_OFF] if record.is_cut_off else []
            case HeaderRecord():
                # A rank that knew its number only later recorded it in another one.
                self._header = self._header or record
                recording.header = record

    def _keep_blocks(self, record: BlockListRecord) -> None:
        """Keep of each device the list with most live bytes and the last: lists are large."""
        kept = [known for known in self._recording.block_lists if known.device == record.device]
        others = [known for known in self._recording.block_lists if known.device != record.device]
        highest = max([*kept, record], key=_live_bytes)
        mine = [highest] if highest is record else [highest, record]
        self._recording.block_lists[:] = others + mine

    def _share_names(self, census: Census) -> None:
        # Names recur in every census and would be most of a long run's memory. Rows are frozen
        # for everybody else, but nobody else has seen these yet.
        share = self._shared.setdefault
        for row in census.rows:
            for field in _RECURRING:
                value = getattr(row, field)
                msgspec.structs.force_setattr(row, field, share(value, value))


_CUT_OFF = NoteRecord(
    slug="recording-stopped",
    message="The recording stopped before the program ended: there was no room left, not even to "
    "say when.",
)


def _live_bytes(record: BlockListRecord) -> int:
    blocks = (block for segment in record.segments for block in segment.blocks)
    return sum(block.size for block in blocks if block.state != BlockState.FREE)


FIRST_FRAMES = 50
"""A rank that learns its number late writes its second header among so many."""


@dataclass(frozen=True)
class Sketch:
    """A journal, and which process wrote it."""

    path: Path
    header: HeaderRecord
    bytes: int


def sketch(folder: Path) -> list[Sketch]:
    """Return the journals of a run that say which process wrote them, copies passed over."""
    found: dict[bytes, Sketch] = {}
    for path in journals(folder):
        try:
            headers, size = _headers(path), path.stat().st_size
        except OSError:
            continue
        if headers:
            journal, identity = Sketch(path, headers[-1], size), encode(headers[0])
            if identity not in found or found[identity].bytes < size:
                found[identity] = journal
    return list(found.values())


def open_recording(journal: Path) -> Recording:
    """Return the recording in a journal, whatever of it can be read; raises as open_run does."""
    return open_run(journal.parent, [journal]).recordings[0]


def is_readable(folder: Path) -> bool:
    """Return whether anything in a run can be read; looks no further than the first record."""
    return any(map(_has_record, journals(folder)))


def _has_record(journal: Path) -> bool:
    try:
        with journal.open("rb", buffering=0) as stream:
            pieces = read_frames(stream)
            return any(_is_record(p.payload) for p in pieces if isinstance(p, JournalFrame))
    except OSError:
        return False


def _is_record(payload: bytes) -> bool:
    try:
        decode_record(payload)
    except (UnknownRecordError, *UNREADABLE):
        return False
    except NewerSchemaError:
        return True  # of another leakscope's: the report says so
    return True


def _headers(path: Path) -> list[HeaderRecord]:
    """Return the headers at the beginning of a journal: the one that counts is the last."""
    headers: list[HeaderRecord] = []
    is_moved = path.name.startswith("rank")
    with path.open("rb", buffering=0) as stream:
        for piece in islice(read_frames(stream), FIRST_FRAMES):
            if isinstance(piece, JournalFrame) and (header := _header_in(piece)) is not None:
                headers.append(header)
                if header.role != "main" or not is_moved:
                    break
    return headers


def _header_in(frame: JournalFrame) -> HeaderRecord | None:
    try:
        record = decode_record(frame.payload)
    except (UnknownRecordError, NewerSchemaError, *UNREADABLE):
        return None
    return record if isinstance(record, HeaderRecord) else None


def merge_runs(paths: Sequence[Path], out: Path, *, force: bool = False) -> RunDirectory:
    """Return a new run directory with the recordings of all; those merged stay as they are.

    What was started, and how it ended, is taken from the one that has rank 0.

    Raises:
        NoRunError: one of the paths is no run.
        RunExistsError: ``out`` holds a run already and ``force`` is not set.
        UnwritableError: it can't be made.
        LeakscopeError: there is one alone, two of them recorded the same rank, or they are no parts
            of one training.

    """
    folders = [find_run(path) for path in paths]
    runs = [open_run(folder, headers_only=True) for folder in folders]
    if len(runs) < 2:
        first_path = f" with {runs[0].path}" if runs else ""
        raise LeakscopeError(
            f"There is nothing to merge{first_path}: name the directories of all machines.",
            slug="nothing-to-merge",
        )
    _refuse_strangers(runs)
    _refuse_two_of_a_rank(runs)
    first = min(runs, key=lambda run: run.main.header.rank)
    target = RunDirectory.create(out, first.manifest, force=force)
    for folder in folders:
        for journal in journals(folder):
            _copy(journal, unused_path(target.path / journal.name))
        for outcome in rank_outcomes(folder):
            _copy(outcome, target.path / outcome.name)
    if first.outcome:
        target.write_outcome(first.outcome)
    return target


def _refuse_strangers(runs: list[Run]) -> None:
    """Refuse runs that are no parts of one training, as far as their recordings show."""
    first, *others = runs
    for other in others:
        for trait, ours, theirs in zip(_TRAITS, _traits(first), _traits(other), strict=True):
            if ours and theirs and ours != theirs:
                raise LeakscopeError(
                    f"{first.path} and {other.path} don't belong together: {trait} is {ours} in "
                    f"the first, {theirs} in the second.",
                    slug="not-together",
                )


_TRAITS = ("the script", "the number of ranks", "the launch")
_OF_A_MACHINE = ("started by ", "spawned ")
"""What a launch is called where it is known from the machine's own processes only."""


def _traits(run: Run) -> tuple[str, str, str]:
    """Return what the parts of a training have in common, each empty where it isn't known."""
    launch = run.manifest.launch
    headers = [recording.header for recording in run.recordings]
    sizes = {header.world_size for header in headers if header.is_primary}
    return (
        PurePath(run.manifest.script).name,
        str(max(sizes)) if sizes else "",
        "" if launch.startswith(_OF_A_MACHINE) else launch,
    )


def _refuse_two_of_a_rank(runs: list[Run]) -> None:
    folders: dict[tuple[int, int], list[str]] = defaultdict(list)
    for run in runs:
        ranks = [r.header for r in run.recordings if r.header.is_primary]
        for attempt, rank in {(header.attempt, header.rank) for header in ranks}:
            folders[attempt, rank].append(str(run.path))
    for (_, rank), places in folders.items():
        if len(places) > 1:
            raise LeakscopeError(
                f"{places[0]} and {places[1]} both recorded rank {rank}: they are two runs, and "
                "leakscope compare tells how they differ.",
                slug="two-of-a-rank",
            )


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as fault:
        reason = "the disk is full" if fault.errno == errno.ENOSPC else fault.strerror or str(fault)
        raise UnwritableError(f"{target} can't be written: {reason}.", slug="unwritable") from fault
