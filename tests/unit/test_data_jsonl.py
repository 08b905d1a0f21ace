"""Strict reading of lines, JSON and tables."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from ragassay.data.jsonl import read_json_entries, read_jsonl, read_tsv
from ragassay.errors import DataError


def write(folder: Path, content: bytes, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path: Path, match: str, **options: int) -> None:
    with pytest.raises(DataError, match=match) as caught:
        list(read_jsonl(path, **options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_rows_come_with_their_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a": 1}\n{"a": 2}\n')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (2, {"a": 2})]


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1}\n{"a": 2}\n\n \r\n\t\n',
        gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
    ],
    ids=["byte order mark", "CRLF", "no last line end", "blank lines at the end", "gzip"],
)
def test_harmless_variants_are_read_alike(tmp_path: Path, content: bytes) -> None:
    assert [row["a"] for _, row in read_jsonl(write(tmp_path, content))] == [1, 2]


def test_unicode_line_separators_do_not_split_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": "x\u2028y\u0085z"}\n'.encode())
    assert list(read_jsonl(path)) == [(1, {"a": "x\u2028y\u0085z"})]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"{'a': 1}\n", r":1: not JSON: .*at character 2"),
        (b'{"a": 1}\n[1]\n', r":2: expected a JSON object, found an array"),
        (b'{"a": 1}\nnull\n', r":2: expected a JSON object, found null"),
        (b'{"a": 1}\n{"a": "caf\xe9"}\n', r":2: not UTF-8: byte 0xE9 at byte 11 of the line"),
        (b'{"a": 1}\n{"a": "cu', r":2: the last line is cut off"),
        (b'{"a": 1}\n\n{"a": 2}\n', r":2: a blank line between rows"),
        (b'{"a": 1, "b": 2, "a": 3}\n', r":1: not JSON: key 'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 1}}\n', r"key 'b' occurs twice"),
        (b'{"a": NaN}\n', r":1: not JSON: NaN is not a JSON number"),
        (b'{"a": -Infinity}\n', r"-Infinity is not a JSON number"),
        (b'{"a": 1e999}\n', r"1e999 does not fit"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", r":1: not JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", r":1: not JSON: nested too deeply"),
        (b"", r"the file is empty"),
        (b"\n\n", r"the file is empty"),
        ('{"a": 1}\n'.encode("utf-16"), r":1: not UTF-8 but UTF-16"),
    ],
)
def test_damaged_rows_are_refused_with_their_line(
    tmp_path: Path, content: bytes, match: str
) -> None:
    refused(write(tmp_path, content), match)


def test_an_empty_file_is_accepted_where_no_row_is_required(tmp_path: Path) -> None:
    assert list(read_jsonl(write(tmp_path, b""), required=False)) == []
    assert list(read_tsv(write(tmp_path, b""), required=False)) == []


def test_an_overlong_line_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    row = json.dumps({"a": "x" * 50}).encode() + b"\n"
    path = write(tmp_path, b'{"a": 1}\n' + row)
    refused(path, r":2: the line is longer than 40 bytes", max_line_bytes=40)
    assert len(list(read_jsonl(path, max_line_bytes=len(row)))) == 2


@pytest.mark.parametrize("cut", [12, 40])
def test_a_truncated_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    packed = gzip.compress(b"".join(b'{"a": %d}\n' % n for n in range(500)))
    refused(write(tmp_path, packed[:cut], "a.jsonl.gz"), "damaged or truncated gzip")


def test_a_corrupt_gzip_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b'{"a": 1}\n' * 500))
    packed[-6] ^= 0xFF  # inside the checksum
    refused(write(tmp_path, bytes(packed), "a.jsonl.gz"), "damaged or truncated gzip")


def test_a_gz_name_without_gzip_content_is_refused(tmp_path: Path) -> None:
    refused(write(tmp_path, b'{"a": 1}\n', "a.jsonl.gz"), "ends in .gz but the content is not")


def test_a_missing_file_suggests_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, b"{}\n", "queries.jsonl")
    refused(tmp_path / "querys.jsonl", r"no such file; did you mean 'queries.jsonl'\?")
    refused(tmp_path / "no" / "folder" / "x.jsonl", r"no such file \(nor is there a folder")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder, expected a file")


def test_tsv_fields_are_split_at_tabs_only(tmp_path: Path) -> None:
    path = write(tmp_path, b'a b\t"c\t1\r\n', "a.tsv")
    assert list(read_tsv(path)) == [(1, ["a b", '"c', "1"])]


def test_json_entries_know_the_line_they_start_on(tmp_path: Path) -> None:
    array = write(tmp_path, b'[\n  {"a": 1},\n\n  {"a":\n 2}, 3\n]\n', "a.json")
    assert list(read_json_entries(array)) == [(2, "0", {"a": 1}), (4, "1", {"a": 2}), (5, "2", 3)]
    keyed = write(tmp_path, b'\xef\xbb\xbf{"x": 1,\n "y": {"a": 2}}', "b.json")
    assert list(read_json_entries(keyed)) == [(1, "x", 1), (2, "y", {"a": 2})]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "the file is empty"),
        (b"[]", "the file holds no entry"),
        (b"{}", "the file holds no entry"),
        (b'"a"', r":1: not JSON: expected a JSON array or object"),
        (b"[1,\n 2", r":2: not JSON: expected ',' or ']', found the end of the file"),
        (b"[1,\n]", r":2: not JSON: Expecting value"),
        (b"[1 2]", r"expected ',' or ']', found 2"),
        (b'{"a" 1}', r"expected ':' after the key"),
        (b"{1: 2}", r"expected a key in double quotes"),
        (b'{"a": 1,\n"a": 2}', r":2: key 'a' was already used on line 1"),
        (b'[{"a": 1, "a": 2}]', r":1: not JSON: key 'a' occurs twice"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[1]\n[2]", r":2: text follows the end"),
        (b'[\n"\xff"]', r":2: not UTF-8: byte 0xFF at byte 2 of the line"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_damaged_json_is_refused_with_its_line(tmp_path: Path, content: bytes, match: str) -> None:
    path = write(tmp_path, content, "a.json")
    with pytest.raises(DataError, match=match):
        list(read_json_entries(path))


def test_overlong_json_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"[" + b" " * 10_000 + b"1]"), "a.json.gz")
    with pytest.raises(DataError, match=re.escape("longer than 1000 bytes")):
        list(read_json_entries(path, max_bytes=1000))
