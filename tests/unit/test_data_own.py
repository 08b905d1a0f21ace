"""One's own questions and documents, in whatever shape they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay.data.documents import Folder, read_documents
from ragassay.data.pairs import Pairs, read_pairs
from ragassay.errors import ConfigError, DataError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_pairs_is_read_by_its_usual_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path / "q.csv",
        'Question;Answer;group\n"Who; then?";Ada;g1\nWhen?;"[""1815"", ""in 1815""]";g1\n',
    )
    first, second = read_pairs(path)
    assert (first.id, first.text, first.references, first.group) == (
        "row-1", "Who; then?", ("Ada",), "g1"
    )  # fmt: skip
    assert second.references == ("1815", "in 1815")
    (only,) = read_pairs(
        write(tmp_path / "q.jsonl", '{"frage": "Wer?", "antworten": ["A", "B"], "id": 5}\n'),
        {"question": "frage", "answer": "antworten"},
    )
    assert (only.id, only.references) == ("5", ("A", "B"))
    (cell,) = read_pairs(write(tmp_path / "s.csv", "question,answer\nWho?,A | B\n"), {}, "|")
    assert cell.references == ("A", "B")


def test_targets_and_passages_join_the_pairs(tmp_path: Path) -> None:
    write(tmp_path / "q.csv", "id,question,answer\nq1,Who?,Ada\nq2,When?,1815\n")
    write(
        tmp_path / "t.jsonl",
        json.dumps({"query_id": "q2", "query": "When?", "references": ["1815"],
                    "wanted": ["1900"], "texts": []}) + "\n",
    )  # fmt: skip
    dataset = Pairs(path=str(tmp_path / "q.csv"), targets="t.jsonl").load()
    assert dataset.name == "q"
    assert dataset.corpus == ()
    assert dataset.targets["q2"].wanted == ("1900",)
    assert dataset.targets["q1"].wanted == ()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.csv", "", "empty"),
        ("q.csv", "question,answer\n", "no question"),
        ("q.csv", "question,answer\n ,x\n", r"q\.csv:2: the question .* is empty"),
        ("q.csv", "a,b\n1,2\n", "no column for the question.*Found: a, b"),
        ("q.csv", "question,answer,id\na,b,1\nc,d,1\n", r"q\.csv:3: the id '1' was used on line 2"),
        ("q.csv", "question,answer\na,b,c\n", r"q\.csv:2: 3 cells, the header has 2"),
        ("q.txt", "x", "tells no format"),
        ("q.jsonl", '{"question": 3, "answer": "x"}\n', "must be a string"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(write(tmp_path / name, text))


def test_wrong_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes("question,answer\nWo?,Köln\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"q\.csv:2: not UTF-8"):
        read_pairs(path)
    path.write_bytes("question,answer\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        read_pairs(path)


# ------------------------------------------------------------------------------ documents

pytest.importorskip("semantic_text_splitter", reason="pip install 'ragassay[documents]'")
ENDINGS = (".md", ".txt", ".html", ".pdf")


def pdf(path: Path, text: str) -> None:
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    page = writer.add_blank_page(300, 300)
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode("latin-1"))
    page[NameObject("/Contents")] = writer._add_object(stream)
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"),
                             NameObject("/Subtype"): NameObject("/Type1"),
                             NameObject("/BaseFont"): NameObject("/Helvetica")})  # fmt: skip
    fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    with path.open("wb") as file:
        writer.write(file)


def test_all_kinds_of_documents_become_passages(tmp_path: Path) -> None:
    write(
        tmp_path / "a.md", "# Ports\n\nPort Arden has a lighthouse.\n\n## Lakes\n\nLake Sorrel.\n"
    )
    write(tmp_path / "sub" / "b.txt", "\ufeffPlain text.")
    write(
        tmp_path / "c.html",
        "<html><head><title>Title &amp; more</title><style>p{}</style></head><body>"
        "<script>steal()</script><p>Seen <b>text</b></p></body></html>",
    )
    pdf(tmp_path / "d.pdf", "Words of a page")
    write(tmp_path / ".hidden.txt", "hidden")
    write(tmp_path / "e.bin", "not read")
    passages = {each.id: each for each in read_documents(tmp_path, ENDINGS, characters=60)}
    assert passages["c.html#1"].title == "Title & more"
    assert "steal" not in passages["c.html#1"].text
    assert passages["c.html#1"].text.split() == ["Seen", "text"]
    assert passages["d.pdf#1"].text.strip() == "Words of a page"
    assert passages["sub/b.txt#1"].text == "Plain text."
    assert [name for name in passages if name.startswith("a.md")] == ["a.md#1", "a.md#2"]
    assert not any("hidden" in name or "e.bin" in name for name in passages)


def test_a_pdf_with_a_password_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pypdf

    pdf(tmp_path / "a.pdf", "secret")

    def refuse(_: Path) -> None:  # what pypdf says of AES without the library that it needs
        raise pypdf.errors.DependencyError("cryptography>=3.1 is required for AES algorithm")

    monkeypatch.setattr(pypdf, "PdfReader", refuse)
    with pytest.raises(DataError, match=r"a\.pdf.*is encrypted; save it without a password"):
        list(read_documents(tmp_path, ENDINGS, characters=60))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=600), st.integers(50, 200))
def test_no_chunk_is_too_long_and_no_word_is_lost(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("d")
    (folder / "a.txt").write_bytes(("start " + text).encode("utf-8"))
    chunks = [each.text for each in read_documents(folder, ENDINGS, characters=limit)]
    assert all(len(chunk) <= limit for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(("start " + text).split())


def test_a_folder_is_a_data_set(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md", "Port Arden has a lighthouse.")
    write(tmp_path / "q.csv", "question,answer\nWhat has Port Arden?,a lighthouse\n")
    dataset = Folder(path=str(tmp_path / "docs"), questions="q.csv").load()
    assert [each.id for each in dataset.corpus] == ["a.md#1"]
    assert dataset.queries[0].text == "What has Port Arden?"
    again = Folder(path=str(tmp_path / "docs"), questions="q.csv").load()
    assert dataset.fingerprint == again.fingerprint


def test_documents_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_documents(tmp_path / "nothing", ENDINGS)
    with pytest.raises(DataError, match="no file ends in"):
        read_documents(tmp_path, ENDINGS)
    write(tmp_path / "empty.md", " \n")
    with pytest.raises(DataError, match=r"no text in empty\.md"):
        read_documents(tmp_path, ENDINGS)
    (tmp_path / "empty.md").unlink()
    (tmp_path / "bad.txt").write_bytes(b"ok\nK\xf6ln")
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8: byte 0xF6"):
        read_documents(tmp_path, ENDINGS)
    (tmp_path / "bad.txt").unlink()
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7 broken")
    with pytest.raises(DataError, match=r"bad\.pdf: is no PDF that can be read"):
        read_documents(tmp_path, ENDINGS)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no way to read '\.docx'"):
        Folder(path="x", questions="q.csv", endings=(".docx",))
    with pytest.raises(ConfigError, match="overlap"):
        Folder(path="x", questions="q.csv", chunk_characters=100, overlap=100)
