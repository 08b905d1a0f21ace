"""The files of a stream: finished segments, which may be compressed, and the one that grows.

::

    trials.00001.jsonl.gz   finished; .zst with zstd
    trials.00002.jsonl      finished, and not compressed yet
    trials.jsonl            grows

A file that has reached its size is renamed, then packed into a file beside it, which appears when
it is whole, then removed. A process may die between any two of these steps: of the two files of
one number, readers take the plain one.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ragassay.errors import StoreError
from ragassay.store import codecs
from ragassay.store.codecs import GZIP, NONE, SUFFIXES, ZSTD, Torn, codec

SEGMENT_BYTES = 64 << 20
_LOG = logging.getLogger(__name__)
_TRIES = 50


class Place(NamedTuple):
    """Where a line is: file of the stream from 0, byte offset, and length in bytes.

    In a compressed file the offset is that of the block, and ``inside`` that of the line in it;
    else ``inside`` is -1.
    """

    file: int
    offset: int
    inside: int
    length: int


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a stream; ``number`` 0 is the one that grows."""

    path: Path
    number: int
    codec: str


def parts_of(folder: Path, stream: str) -> list[Part]:
    """The files of a stream, oldest first."""
    pattern = re.compile(rf"{stream}(?:\.([0-9]{{5,}}))?\.jsonl(\.gz|\.zst)?")
    numbered: dict[int, Part] = {}
    growing: list[Part] = []
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:  # the plain file of a number comes before the compressed one
        match = pattern.fullmatch(name)
        if match is None:
            continue
        part = Part(folder / name, int(match[1] or 0), SUFFIXES[match[2] or ""])
        if part.number:
            numbered.setdefault(part.number, part)
        elif part.codec == NONE:
            growing.append(part)
    return [*(numbered[number] for number in sorted(numbered)), *growing]


@contextmanager
def opened(folder: Path, stream: str) -> Iterator[list[tuple[Part, BinaryIO]]]:
    """Open the files of a stream as of one moment, also while another process rotates them.

    Raises
    ------
    StoreError
        One cannot be opened.
    """
    for attempt in range(_TRIES):
        time.sleep(min(attempt, 20) / 1000)
        with ExitStack() as stack:
            parts = parts_of(folder, stream)
            try:
                files: list[tuple[Part, BinaryIO]] = [
                    (part, stack.enter_context(part.path.open("rb"))) for part in parts
                ]
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{error.filename} cannot be read: {error.strerror}") from error
            if parts_of(folder, stream) == parts:
                yield files
                return
    raise StoreError(f"{folder}: the files of {stream} keep changing; try again")


def lines(files: list[tuple[Part, BinaryIO]]) -> Iterator[tuple[bytes, Place]]:
    """Every whole line of opened files, with its place.

    Raises
    ------
    StoreError
        A file is damaged, or one that is not the last ends early.
    """
    last = len(files) - 1
    while last > 0 and os.fstat(files[last][1].fileno()).st_size == 0:
        last -= 1
    for number, (part, file) in enumerate(files):
        read = _plain if part.codec == NONE else _packed
        yield from read(part, file, number, number >= last)


def _plain(
    part: Part, file: BinaryIO, number: int, last: bool, start: int = 0
) -> Iterator[tuple[bytes, Place]]:
    file.seek(start)
    offset = start
    for line in file:
        if not line.endswith(b"\n"):
            if last:
                _LOG.warning("%s: the last line is torn and is left out", part.path)
                return
            raise StoreError(_early(part))
        yield line, Place(number, offset, -1, len(line))
        offset += len(line)


def lines_from(
    part: Part, file: BinaryIO, number: int, start: int
) -> Iterator[tuple[bytes, Place]]:
    """The whole lines of a plain file from an offset on."""
    return _plain(part, file, number, True, start)


def _packed(part: Part, file: BinaryIO, number: int, last: bool) -> Iterator[tuple[bytes, Place]]:
    blocks = codec(part.codec).blocks(file)
    offset = -1
    while True:
        try:
            offset, data = next(blocks)
        except StopIteration:
            return
        except Torn as torn:
            if not last:
                raise StoreError(_early(part)) from torn
            _LOG.warning("%s ends early; its whole records are read", part.path)
            whole = torn.data[: torn.data.rfind(b"\n") + 1]
            yield from _split(whole, number, torn.offset)
            return
        except ValueError as error:
            raise StoreError(
                f"{part.path} is damaged behind byte {max(offset, 0)} ({error}); restore the file, "
                "or delete it and run again: only its records are repeated"
            ) from error
        if not data.endswith(b"\n"):
            raise StoreError(f"{part.path} is damaged: the block at byte {offset} has no line end")
        yield from _split(data, number, offset)


def _split(data: bytes, number: int, offset: int) -> Iterator[tuple[bytes, Place]]:
    start = 0
    while (stop := data.find(b"\n", start) + 1) > 0:
        yield data[start:stop], Place(number, offset, start, stop - start)
        start = stop


def _early(part: Part) -> str:
    return (
        f"{part.path} ends early, and there are later records; restore the file, or run the "
        "experiment again: its whole records are kept and only those that are lost are repeated"
    )


class LineReader:
    """Reads single lines of opened files; the last block that was unpacked is kept."""

    def __init__(self, files: list[tuple[Part, BinaryIO]]) -> None:
        self.files = files
        self._kept: tuple[tuple[int, int], bytes] = ((-1, -1), b"")

    def __call__(self, place: Place) -> bytes:
        """The line at a place.

        Raises
        ------
        StoreError
            The file does not hold it.
        """
        part, file = self.files[place.file]
        if place.inside < 0:
            file.seek(place.offset)
            return file.read(place.length)
        at = (place.file, place.offset)
        if self._kept[0] != at:
            packed = codec(part.codec)
            self._kept = at, codecs.one_block(file, packed, place.offset, str(part.path))
        return self._kept[1][place.inside : place.inside + place.length]


# ---------------------------------------------------------------------------------- rotation


def rotate(folder: Path, stream: str, name: str) -> None:
    """Make the growing file of a stream a finished segment, and pack it.

    Where there is no room to pack it, it stays as it is: nothing is lost, and opening the folder
    for writing packs it later.
    """
    growing = folder / f"{stream}.jsonl"
    if not growing.exists() or growing.stat().st_size == 0:
        return
    number = 1 + max((part.number for part in parts_of(folder, stream)), default=0)
    finished = folder / f"{stream}.{number:05d}.jsonl"
    growing.rename(finished)
    pack(Part(finished, number, NONE), name)


def pack(part: Part, name: str) -> None:
    """Compress a finished segment; the plain file goes when the other is whole on the disk."""
    packed = codec(name)
    target = part.path.with_name(part.path.name + packed.suffix)
    temporary = part.path.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with part.path.open("rb") as source, temporary.open("wb") as file:
            for block in _blocks_of(source):
                file.write(packed.pack(block))
            file.write(packed.end)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        part.path.unlink()
    except OSError as error:
        temporary.unlink(missing_ok=True)
        _LOG.warning("%s is not compressed: %s", part.path, error.strerror or error)


def _blocks_of(source: BinaryIO) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for line in source:
        if block and size + len(line) > codecs.BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
        block.append(line)
        size += len(line)
    if block:
        yield b"".join(block)


def mend(folder: Path, stream: str) -> None:
    """Save the whole records of compressed segments that end early, as plain segments.

    What is left of such a file stays beside, under the name ``*.torn``.

    Raises
    ------
    StoreError
        There is no room to write them.
    """
    for part in parts_of(folder, stream):
        if part.codec == NONE:
            continue
        with part.path.open("rb") as file:
            if codecs.ends_whole(file, codec(part.codec)):
                continue
            plain = part.path.with_suffix("")
            temporary = plain.with_name(f".{plain.name}.{os.getpid()}.tmp")
            saved = 0
            try:
                with temporary.open("wb") as out:
                    for line, _ in _packed(part, file, 0, True):
                        out.write(line)
                        saved += 1
                    out.flush()
                    os.fsync(out.fileno())
                temporary.replace(plain)
                part.path.rename(part.path.with_name(part.path.name + ".torn"))
            except OSError as error:
                temporary.unlink(missing_ok=True)
                raise StoreError(f"{plain} cannot be written: {error.strerror or error}") from error
        _LOG.warning("%s ended early; its %d whole records are kept in %s",
                     part.path, saved, plain.name)  # fmt: skip


def compression_of(folder: Path, stream: str) -> str:
    """How the segments of a stream are compressed already: that of the newest one."""
    found = [part.codec for part in parts_of(folder, stream) if part.codec in (GZIP, ZSTD)]
    return found[-1] if found else NONE
