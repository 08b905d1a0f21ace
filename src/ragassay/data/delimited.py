"""Strict reading of CSV: UTF-8, one header, every row as wide as it, with line numbers."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from ragassay.data.jsonl import MAX_LINE_BYTES, existing_file
from ragassay.errors import DataError

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = ",;\t"
# Cells that a spreadsheet would take for a formula, as it trims what stands before them.
_FORMULA = tuple("=+-@\t\r\n")


class Notes(Protocol):
    """Where rows that cannot be used are noted."""

    def add(self, message: str, *, path: Path | None = None, line: int = 0) -> None:
        """Note a problem and where it is."""


def read_delimited(path: Path, problems: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a file of comma, semicolon or tab separated values with a header.

    The separator is the one that stands most often in the first line. Cells may hold line
    ends in quotes; a leading byte order mark is accepted, and so is gzip.

    Yields
    ------
    tuple of int and dict
        The line on which the row starts, from 1, and its cells by column.

    Raises
    ------
    DataError
        The file is missing, no UTF-8, or no CSV. A row of another width than the header is
        noted in ``problems`` and left out.
    """
    lines = _lines(path)
    first = next(lines, "")
    if not first.strip():
        raise DataError("the file is empty, expected a header", path=path, line=1)
    delimiter = max(_DELIMITERS, key=first.count)
    with _long_fields():
        reader = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
        header: list[str] = []
        start = 1
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise DataError(f"not CSV: {error}", path=path, line=start) from error
            if cells is None:
                break
            if not header:
                header = _checked_header(cells, path)
            elif len(cells) == len(header):
                yield start, dict(zip(header, cells, strict=True))
            elif cells:
                problems.add(
                    f"{len(cells)} cells, the header has {len(header)}", path=path, line=start
                )
            start = reader.line_num + 1


def safe_cell(text: str) -> str:
    """Write a cell so that no spreadsheet takes it for a formula: a quote stands before it.

    Examples
    --------
    >>> safe_cell("=cmd()"), safe_cell("a = b"), safe_cell("")
    ("'=cmd()", 'a = b', '')
    """
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _checked_header(cells: list[str], path: Path) -> list[str]:
    for position, name in enumerate(cells):
        if name in cells[:position]:
            raise DataError(f"the column {name!r:.60} occurs twice", path=path, line=1)
    return cells


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let a cell be as long as a line may be (the csv module's limit is 128 KiB)."""
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _chain(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _lines(path: Path) -> Iterator[str]:
    number = 0
    with _open(path) as stream:
        while True:
            try:
                raw = stream.readline(MAX_LINE_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"cannot be read: {error}", path=path) from error
            if not raw:
                return
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise DataError(
                    f"the line is longer than {MAX_LINE_BYTES} bytes", path=path, line=number
                )
            if number == 1:
                if raw.startswith(_UTF16):
                    raise DataError("not UTF-8 but UTF-16; save it as UTF-8", path=path, line=1)
                raw = raw.removeprefix(_BOM)
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"not UTF-8: byte 0x{raw[error.start]:02X} at byte {error.start + 1} of the "
                    "line; save the file as UTF-8",
                    path=path,
                    line=number,
                ) from error


def _open(path: Path) -> BinaryIO:
    existing_file(path)
    try:
        stream = path.open("rb")
        if stream.peek(2)[:2] != b"\x1f\x8b":
            return stream
        stream.close()
        return cast(BinaryIO, gzip.open(path, "rb"))
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror or error}", path=path) from error
