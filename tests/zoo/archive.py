"""Recordings as small files: a run directory, compressed, without the paths of the machine.

Journals compress their larger records each by itself, which hides from a compressor that censuses
repeat each other. Their frames are written plain here, which readers accept as well, and the whole
is compressed at once: to a fourth or a tenth of its size.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from leakscope.recording.directory import is_file_of_run, journals
from leakscope.recording.format import HEADER, MAGIC, PLAIN, Gap, read_frames
from leakscope.recording.format import _checksum as checksum

ABOUT = "about.json"
SUFFIX = ".tar.xz"


@dataclass(frozen=True)
class About:
    """What a recording is of."""

    name: str
    """The program's."""
    form: str
    """In which form it ran: see ``forms``."""
    program_digest: str
    """Of the program's text as it was run."""
    recorder_digest: str
    """Of the part of leakscope that records."""
    budget: str
    seconds: float
    """How long the recorded run took."""


def pack(run: Path, target: Path, about: About, places: Mapping[str, str]) -> None:
    """Write a run directory as one file; of what lies in it, what the recorder wrote.

    Args:
        run: The run directory.
        target: The file; it is replaced whole or not at all.
        about: What it is of.
        places: Paths of this machine, and what to write instead of each.

    """
    swaps = [(old.encode(), new.encode()) for old, new in places.items()]
    members = [(ABOUT, msgspec.json.encode(asdict(about)))]
    members += [
        (file.name, replaced(file.read_bytes(), swaps))
        for file in sorted(run.iterdir())
        if is_file_of_run(file)
    ]
    members += [(journal.name, plain_journal(journal, swaps)) for journal in journals(run)]
    packed = lzma.compress(archived(members), preset=9 | lzma.PRESET_EXTREME)
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_bytes(packed)
    temporary.replace(target)


def unpack(archive: Path, folder: Path) -> About:
    """Write an archived run into a folder and return what it is of."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(archive.read_bytes()))) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                (folder / Path(member.name).name).write_bytes(content.read())
    return decode_about((folder / ABOUT).read_bytes())


def about(archive: Path) -> About:
    """Return what an archived run is of."""
    with tarfile.open(archive, "r|xz") as tar:
        first = tar.next()
        content = tar.extractfile(first) if first is not None else None
        if content is None:
            raise ValueError(f"{archive} says not what it is of")
        return decode_about(content.read())


def decode_about(text: bytes) -> About:
    fields: dict[str, Any] = msgspec.json.decode(text)
    return About(**fields)


def archived(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return files as a tar file that depends on their names and contents alone."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def plain_journal(journal: Path, swaps: list[tuple[bytes, bytes]]) -> bytes:
    """Return a journal with its records uncompressed; as it is where a part of it is damaged."""
    frames = []
    with journal.open("rb") as stream:
        for piece in read_frames(stream):
            if isinstance(piece, Gap):
                return journal.read_bytes()
            payload = replaced(piece.payload, swaps)
            header = HEADER.pack(MAGIC, PLAIN, len(payload), checksum(PLAIN, payload))
            frames.append(header + payload + b"\n")
    return b"".join(frames)


def replaced(content: bytes, swaps: list[tuple[bytes, bytes]]) -> bytes:
    for old, new in swaps:
        content = content.replace(old, new)
    return content
