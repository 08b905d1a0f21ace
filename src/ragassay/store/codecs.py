"""Compressed blocks: a segment is a row of blocks that can be read one by one.

A block is a gzip member or a zstd frame of its own with whole lines in it, so that common tools
read the file, a record is read without what stands before it, and a file that ends early loses
only what is behind. The last block is empty: a file without it is torn.

Source: RFC 1952, section 2.2 (a gzip file is a row of members); RFC 8878, section 3.1 (frames).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from ragassay.errors import ConfigError, StoreError

NONE, GZIP, ZSTD = "none", "gzip", "zstd"
SUFFIXES = {"": NONE, ".gz": GZIP, ".zst": ZSTD}
BLOCK_BYTES = 1 << 18  # of lines in a block, before compression; a longer line has one of its own
MAX_BLOCK = 1 << 28  # what is unpacked at once, so that no file can fill the memory
_READ = 1 << 20
_ZSTD_HEADER = 18


class Torn(Exception):
    """A block ends early: where it starts, and what of it could be read."""

    def __init__(self, offset: int, data: bytes) -> None:
        super().__init__(f"a block ends early at byte {offset}")
        self.offset = offset
        self.data = data


class Codec(Protocol):
    """How blocks are packed."""

    @property
    def suffix(self) -> str:
        """What the names of packed files end with."""

    @property
    def end(self) -> bytes:
        """The empty block."""

    def pack(self, data: bytes) -> bytes:
        """One block."""

    def blocks(self, file: BinaryIO, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Where each block starts, and what is in it; ends behind the empty one.

        Raises
        ------
        Torn
            The file ends early.
        ValueError
            A block is damaged or too large.
        """


@dataclass(frozen=True, slots=True)
class Gzip:
    """Members of a gzip file, from the standard library."""

    suffix: str = ".gz"
    end: bytes = bytes.fromhex("1f8b08000000000000ff0300") + bytes(8)

    def pack(self, data: bytes) -> bytes:
        """One member; no time stands in it, so that equal lines give equal bytes."""
        machine = zlib.compressobj(6, zlib.DEFLATED, 31)
        return machine.compress(data) + machine.flush()

    def blocks(self, file: BinaryIO, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """See :meth:`Codec.blocks`."""
        file.seek(offset)
        pending = b""
        while True:
            machine = zlib.decompressobj(31)
            parts: list[bytes] = []
            room, used = MAX_BLOCK, 0
            while not machine.eof:
                chunk = pending or file.read(_READ)
                if not chunk:
                    raise Torn(offset, b"".join(parts))
                try:
                    part = machine.decompress(chunk, room)
                except zlib.error as error:
                    raise ValueError(str(error)) from error
                pending = machine.unused_data or machine.unconsumed_tail
                used += len(chunk) - len(pending)
                parts.append(part)
                room -= len(part)
                if room <= 0 and not machine.eof:
                    raise ValueError(f"a block is larger than {MAX_BLOCK} bytes")
            data = b"".join(parts)
            if not data:
                return
            yield offset, data
            offset += used


@dataclass(frozen=True, slots=True)
class Zstd:
    """Frames of a zstd file, with checksums and their sizes."""

    library: Any
    suffix: str = ".zst"
    end: bytes = bytes.fromhex("28b52ffd240001000099e9d851")

    def pack(self, data: bytes) -> bytes:
        """One frame."""
        machine = self.library.ZstdCompressor(level=6, write_checksum=True, write_content_size=True)
        return bytes(machine.compress(data))

    def blocks(self, file: BinaryIO, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """See :meth:`Codec.blocks`."""
        file.seek(offset)
        pending = b""
        while True:
            head = pending
            while len(head) < _ZSTD_HEADER and (more := file.read(_READ)):
                head += more
            self._check(head, offset)
            machine = self.library.ZstdDecompressor().decompressobj()
            parts: list[bytes] = []
            chunk, used = head, 0
            while not machine.eof:
                if not chunk:
                    raise Torn(offset, b"".join(parts))
                try:
                    parts.append(machine.decompress(chunk))
                except self.library.ZstdError as error:
                    raise ValueError(str(error)) from error
                used += len(chunk)
                chunk = b"" if machine.eof else file.read(_READ)
            pending = machine.unused_data
            data = b"".join(parts)
            if not data:
                return
            yield offset, data
            offset += used - len(pending)

    def _check(self, head: bytes, offset: int) -> None:
        try:
            size = self.library.get_frame_parameters(head).content_size
        except self.library.ZstdError as error:
            if len(head) < _ZSTD_HEADER:
                raise Torn(offset, b"") from error
            raise ValueError(str(error)) from error
        if not 0 <= size <= MAX_BLOCK:
            raise ValueError(f"a block says no size up to {MAX_BLOCK} bytes")


def codec(name: str) -> Codec:
    """The codec of a name, ``"gzip"`` or ``"zstd"``.

    Raises
    ------
    ConfigError
        zstd is asked for, and the package is not installed.
    """
    if name == GZIP:
        return Gzip()
    try:
        import zstandard
    except ImportError as error:
        raise ConfigError(
            "zstd needs the package zstandard: pip install 'ragassay[zstd]', or use gzip"
        ) from error
    return Zstd(zstandard)


def ends_whole(file: BinaryIO, packed: Codec) -> bool:
    """Whether a compressed file ends with the empty block."""
    size = file.seek(0, 2)
    file.seek(max(0, size - len(packed.end)))
    return file.read() == packed.end


def one_block(file: BinaryIO, packed: Codec, offset: int, where: str) -> bytes:
    """What is in the block at an offset.

    Raises
    ------
    StoreError
        There is none, or it is damaged.
    """
    try:
        return next(packed.blocks(file, offset))[1]
    except Torn as torn:
        return torn.data
    except (ValueError, StopIteration) as error:
        raise StoreError(f"{where}: no block at byte {offset}") from error
