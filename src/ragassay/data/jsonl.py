"""Strict reading of ``.jsonl``, ``.json`` and ``.tsv`` files, plain or gzip, with line numbers.

The files come from elsewhere and may be damaged or hostile, so nothing is repaired in
silence: what is not UTF-8, not JSON, cut off, doubled or unbounded is a
:class:`~ragassay.errors.DataError` that names the file and the line. A leading byte order
mark and CRLF line ends are accepted, since editors write them. Whether a file is compressed
is seen from its first two bytes, not from its name.
"""

from __future__ import annotations

import difflib
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from ragassay.data.entries import kind_of
from ragassay.errors import DataError

MAX_LINE_BYTES = 16 * 2**20
MAX_JSON_BYTES = 512 * 2**20
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SPACE = " \t\r\n"


def read_jsonl(
    path: str | Path, *, max_line_bytes: int = MAX_LINE_BYTES, required: bool = True
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read one JSON object a line.

    Parameters
    ----------
    path : str or Path
        A file, plain or gzip.
    max_line_bytes : int
        Longest line that is accepted, in bytes after decompression.
    required : bool
        Whether a file without any object is an error.

    Yields
    ------
    tuple of int and dict
        Line number, from 1, and the object.

    Raises
    ------
    DataError
        The file is missing or damaged, or a line is not one JSON object. NaN, Infinity,
        numbers beyond float64 and doubled keys are refused. Blank lines may only end a file.
    """
    for line, _, _, value in read_placed_jsonl(
        path, max_line_bytes=max_line_bytes, required=required
    ):
        yield line, value


def read_placed_jsonl(
    path: str | Path, *, max_line_bytes: int = MAX_LINE_BYTES, required: bool = True
) -> Iterator[tuple[int, int, bytes, dict[str, Any]]]:
    """Read one JSON object a line, and where it stands.

    Yields
    ------
    tuple of int, int, bytes and dict
        Line number, from 1; where the line starts, in bytes of the uncompressed file; the
        line with its end; the object.

    Raises
    ------
    DataError
        As for :func:`read_jsonl`.
    """
    path = Path(path)
    found = False
    for line, text, ended, place, raw in _placed_lines(path, max_line_bytes):
        try:
            value = _loads(text)
        except _NotJson as error:
            if not ended:
                raise DataError(
                    f"the last line is cut off (no line end, and {error})", path=path, line=line
                ) from error
            raise DataError(f"not JSON: {error}", path=path, line=line) from error
        if not isinstance(value, dict):
            raise DataError(f"expected a JSON object, found {kind_of(value)}", path=path, line=line)
        found = True
        yield line, place, raw, value
    if required and not found:
        raise DataError("the file is empty, expected one JSON object a line", path=path)


def read_tsv(
    path: str | Path, *, max_line_bytes: int = MAX_LINE_BYTES, required: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Read a tab-separated table without quoting; yields line number and fields.

    Raises
    ------
    DataError
        As for :func:`read_jsonl`.
    """
    path = Path(path)
    found = False
    for line, text, *_ in _placed_lines(path, max_line_bytes):
        found = True
        yield line, text.split("\t")
    if required and not found:
        raise DataError("the file is empty, expected tab-separated rows", path=path)


def read_json_entries(
    path: str | Path, *, max_bytes: int = MAX_JSON_BYTES
) -> Iterator[tuple[int, str, Any]]:
    """Read the entries of one JSON array or object, each with the line it starts on.

    Yields
    ------
    tuple of int, str and value
        Line number; the key (for an array the decimal position, from 0); the entry.

    Raises
    ------
    DataError
        As for :func:`read_jsonl`; also when the file is neither an array nor an object.
    """
    path = Path(path)
    text = _whole(path, max_bytes)
    cursor = _Cursor(text, path)
    opening = cursor.take("[{", "a JSON array or object")
    closing = "]" if opening == "[" else "}"
    seen: dict[str, int] = {}
    if cursor.peek() != closing:
        while True:
            line = cursor.line()
            key = str(len(seen))
            if opening == "{":
                key = cursor.value()
                if not isinstance(key, str):
                    cursor.fail(f"expected a key in double quotes, found {kind_of(key)}")
                cursor.take(":", "':' after the key")
                if key in seen:
                    cursor.fail(f"key {key!r:.60} was already used on line {seen[key]}")
            seen[key] = line
            yield line, key, cursor.value()
            if cursor.take("," + closing, f"',' or '{closing}'") == closing:
                break
    else:
        cursor.take(closing, closing)
    if cursor.peek():
        cursor.fail("text follows the end of the JSON value")
    if not seen:
        raise DataError("the file holds no entry", path=path)


def is_gzip(path: Path) -> bool:
    """Tell from the first two bytes whether a file is compressed."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def is_json_lines(path: Path) -> bool:
    """Tell from the name whether a file holds one object a line (else one JSON value)."""
    return path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))


def existing_file(path: Path) -> Path:
    """Return the path if it is a regular file.

    Raises
    ------
    DataError
        It is not; the message names the nearest file name beside it.
    """
    if path.is_file():
        return path
    if path.is_dir():
        raise DataError("is a folder, expected a file", path=path)
    if path.exists():
        raise DataError("is not a regular file", path=path)
    raise DataError(f"no such file{nearest(path)}", path=path)


def nearest(path: Path) -> str:
    """Suggest, as the end of a message, what the missing path may have meant."""
    parent = path.parent
    try:
        present = sorted(entry.name for entry in parent.iterdir())
    except OSError:
        return f" (nor is there a folder {parent})" if not parent.is_dir() else ""
    close = difflib.get_close_matches(path.name, present, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


# --------------------------------------------------------------------------------- internals


class _NotJson(ValueError):
    """What a JSON text violates, in a few words."""


def _placed_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str, bool, int, bytes]]:
    """Yield of each line: number, text without line end, whether it was ended, place, bytes."""
    number, blank, place = 0, 0, 0
    with _open(path) as stream:
        while True:
            raw = _read(stream, path, number + 1, max_bytes)
            if not raw:
                return
            number += 1
            if number == 1:
                if raw.startswith(_UTF16):
                    raise DataError("not UTF-8 but UTF-16; save it as UTF-8", path=path, line=1)
                if raw.startswith(_BOM):
                    raw, place = raw.removeprefix(_BOM), len(_BOM)
            text = _decode(raw, path, number)
            start, place = place, place + len(raw)
            if not text.strip():
                blank = blank or number
                continue
            if blank:
                raise DataError("a blank line between rows", path=path, line=blank)
            ended = text.endswith("\n")
            yield number, text.rstrip("\r\n") if ended else text, ended, start, raw


def _read(stream: BinaryIO, path: Path, number: int, max_bytes: int) -> bytes:
    try:
        raw = stream.readline(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(error, path) from error
    if len(raw) > max_bytes:
        raise DataError(f"the line is longer than {max_bytes} bytes", path=path, line=number)
    return raw


def _whole(path: Path, max_bytes: int) -> str:
    with _open(path) as stream:
        try:
            raw = stream.read(max_bytes + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(error, path) from error
    if len(raw) > max_bytes:
        raise DataError(f"the file is longer than {max_bytes} bytes", path=path)
    if raw.startswith(_UTF16):
        raise DataError("not UTF-8 but UTF-16; save it as UTF-8", path=path, line=1)
    raw = raw.removeprefix(_BOM)
    if not raw.strip():
        raise DataError("the file is empty, expected a JSON array or object", path=path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _wrong_byte(error, raw, path, line) from error


def _open(path: Path) -> BinaryIO:
    existing_file(path)
    try:
        stream = path.open("rb")
        if stream.peek(2)[:2] != _GZIP:
            if path.suffix == ".gz":
                stream.close()
                raise DataError("the name ends in .gz but the content is not gzip", path=path)
            return stream
        stream.close()
        return cast(BinaryIO, gzip.open(path, "rb"))
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror or error}", path=path) from error


def _damaged(error: Exception, path: Path) -> DataError:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return DataError(f"cannot be read: {error.strerror or error}", path=path)
    return DataError(f"damaged or truncated gzip: {error}", path=path)


def _decode(raw: bytes, path: Path, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong_byte(error, raw, path, line) from error


def _wrong_byte(error: UnicodeDecodeError, raw: bytes, path: Path, line: int) -> DataError:
    column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
    return DataError(
        f"not UTF-8: byte 0x{raw[error.start]:02X} at byte {column} of the line "
        f"({error.reason}); save the file as UTF-8",
        path=path,
        line=line,
    )


def _loads(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _NotJson(f"{error.msg} at character {error.colno}") from error
    except RecursionError as error:
        raise _NotJson("nested too deeply") from error
    except ValueError as error:
        raise _NotJson(str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _NotJson(f"key {twice!r:.60} occurs twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJson(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotJson(f"{text:.40} does not fit a 64-bit float")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)


class _Cursor:
    """A position in a JSON text that knows its line."""

    def __init__(self, text: str, path: Path) -> None:
        self._text, self._path = text, path
        self._at = self._counted = 0
        self._line = 1

    def line(self) -> int:
        self.peek()
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        return self._text[self._at : self._at + 1]

    def take(self, allowed: str, meaning: str) -> str:
        found = self.peek()
        if not found or found not in allowed:
            self.fail(f"not JSON: expected {meaning}, found {found or 'the end of the file'}")
        self._at += 1
        return found

    def value(self) -> Any:
        self.peek()
        start = self._at
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._at = error.pos
            self.fail(f"not JSON: {error.msg} at character {error.colno}")
        except RecursionError:
            self.fail("not JSON: nested too deeply")
        except ValueError as error:
            self.fail(f"not JSON: {error} (in the value that starts at character {start})")
        return value

    def fail(self, message: str) -> NoReturn:
        raise DataError(message, path=self._path, line=self.line())
