from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay.canon import digest, digest_of_stream
from ragassay.data.assembly import corpus_fingerprint
from ragassay.data.beir import Beir, read_corpus
from ragassay.data.corpus_file import CorpusFile, SortedCorpus, ids_of
from ragassay.errors import DataError, StoreError
from ragassay.retrieval.dense import DenseRetriever
from ragassay.retrieval.sparse import BM25Retriever
from ragassay.types import Passage

IDS = ["b", "a", "ä", "Z", "\U0001f98a", "￼", "\ud800", "10", "9", "a b", "a\x00", "x" * 300]


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "_id": IDS[n % len(IDS)] + (str(n) if n >= len(IDS) else ""),
            "title": "" if n % 3 else f"Title {n}",
            "text": "" if n % 7 == 6 else f"fox number {n % 11} naïve \U0001f98a\n word{n}",
        }
        for n in range(count)
    ]


def written(folder: Path, lines: list[dict[str, Any]], *, packed: bool = False, bom: bool = False,
            end: str = "\n") -> Path:  # fmt: skip
    content = (b"\xef\xbb\xbf" if bom else b"") + end.join(map(json.dumps, lines)).encode()
    path = folder / ("corpus.jsonl.gz" if packed else "corpus.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_holds_what_reading_it_into_memory_gives(
    tmp_path: Path, packed: bool, bom: bool, end: str
) -> None:
    path = written(tmp_path, rows(), packed=packed, bom=bom, end=end)
    corpus, known = CorpusFile(path, tmp_path / "cache"), read_corpus(path)
    assert len(corpus) == len(known)
    assert tuple(corpus) == known
    assert [corpus[n] for n in range(len(known))] == list(known)
    assert corpus[-1] == known[-1]
    assert corpus[7:3:-2] == known[7:3:-2]
    assert tuple(corpus.by_id) == tuple(sorted(known, key=lambda passage: passage.id))
    assert all(passage.id in corpus.ids for passage in known)
    assert not any(key in corpus.ids for key in ("", "nobody", "b ", 3))
    assert corpus_fingerprint(corpus) == corpus_fingerprint(known)
    with pytest.raises(IndexError):
        corpus[len(known)]


def test_a_second_opening_reads_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, rows())
    first = CorpusFile(path, tmp_path / "cache")
    fingerprint = corpus_fingerprint(first)
    first.close()
    monkeypatch.setattr("ragassay.data.corpus_file._build", None)
    second = CorpusFile(path, tmp_path / "cache")
    monkeypatch.setattr(CorpusFile, "_read", None)
    assert corpus_fingerprint(second) == fingerprint
    assert isinstance(second.by_id, SortedCorpus)


def test_another_content_is_another_index_and_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    path = written(tmp_path, rows())
    CorpusFile(path, tmp_path / "cache").close()
    written(tmp_path, rows(20))
    assert len(CorpusFile(path, tmp_path / "cache")) == 20
    for file in (tmp_path / "cache" / "corpora").glob("*/order.npy"):
        file.write_bytes(b"")
    assert CorpusFile(path, tmp_path / "cache").by_id[0].id == "10"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"_id": "a", "text": "x"}, {"_id": "b", "text": "y"}, {"_id": "a", "text": "z"}],
         "id 'a' was already used on line 1"),
        ([{"_id": "a", "text": " "}], "all 1 passages are empty"),
        ([{"_id": "a"}], "the key 'text' is missing"),
    ],
)  # fmt: skip
def test_faults_are_those_of_reading_into_memory_and_leave_nothing(
    tmp_path: Path, lines: list[dict[str, Any]], message: str
) -> None:
    path = written(tmp_path, lines)
    for read in (read_corpus, lambda path: CorpusFile(path, tmp_path / "cache")):
        with pytest.raises(DataError, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)
    assert {p.suffix for p in (tmp_path / "cache" / "corpora").iterdir()} == {".lock"}


def test_a_file_that_changes_under_way_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, rows())
    corpus = CorpusFile(path, tmp_path / "cache")
    with path.open("r+b") as file:
        file.write(b"x" * 200)
    with pytest.raises(DataError, match="no longer what it was"):
        corpus[0]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match="RAGASSAY_CACHE"):
        CorpusFile(written(tmp_path, rows()), tmp_path / "cache")


def test_threads_share_a_corpus(tmp_path: Path) -> None:
    path = written(tmp_path, rows(200))
    corpus, known = CorpusFile(path, tmp_path / "cache"), read_corpus(path)
    start = threading.Barrier(4)

    def work(step: int) -> bool:
        start.wait()
        return all(corpus[n] == known[n] and known[n].id in corpus.ids for n in range(step, 200, 3))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def folder_of(tmp_path: Path) -> Path:
    written(tmp_path, rows())
    questions = [{"_id": f"q{n}", "text": f"which fox is number {n}?"} for n in range(6)]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q1\tb\t1\nq2\tZ\t1\n", encoding="utf-8")
    return tmp_path


def test_where_a_corpus_lies_changes_no_fingerprint_and_no_hit(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    data = {
        reading: Beir(path=str(folder), reading=reading).load()  # type: ignore[arg-type]
        for reading in ("memory", "disk", "auto")
    }
    assert isinstance(data["disk"].corpus, CorpusFile)
    assert isinstance(data["auto"].corpus, tuple)  # it is small
    assert len({d.fingerprint for d in data.values()}) == 1
    poison = [Passage(id="evil", text="fox number 3"), Passage(id="evil2", text="which fox")]
    for retriever in (
        DenseRetriever(encoder="hashing"), DenseRetriever(encoder="hashing", titles=False),
        BM25Retriever(),
    ):  # fmt: skip
        found = []
        for reading, each in data.items():
            index = retriever.index(
                each.corpus, fingerprint="f", cache_dir=tmp_path / reading, progress=None
            )
            found.append((index.search(each.queries, 7), index.poisoned(each.queries, poison, 7)))
            with pytest.raises(DataError, match="has the id of a corpus passage"):
                index.poisoned(each.queries, [Passage(id="\ud800", text="x")], 3)
        assert found[0] == found[1] == found[2]


def test_an_unknown_gold_passage_is_found_on_disk_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "qrels" / "test.tsv").write_text("q1\tnobody\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match="passage 'nobody'"):
        Beir(path=str(folder), reading="disk").load()


def test_ids_of_any_corpus(tmp_path: Path) -> None:
    corpus = CorpusFile(written(tmp_path, rows()), tmp_path / "cache")
    for each in (corpus, corpus.by_id, tuple(corpus)):
        assert "ä" in ids_of(each)
        assert "nobody" not in ids_of(each)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda some: (
        st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25)
@given(JSON, st.lists(JSON, max_size=4))
def test_a_digest_in_pieces_is_the_digest_of_the_whole(value: Any, items: list[Any]) -> None:
    assert digest_of_stream(value) == digest(value)
    assert digest_of_stream({"é": iter(items), "a": value, "z": {"b": iter([])}}) == digest(
        {"é": items, "a": value, "z": {"b": []}}
    )
