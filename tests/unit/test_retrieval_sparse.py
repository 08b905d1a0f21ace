from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay import plugins
from ragassay.errors import BackendUnavailable, ConfigError, DataError, PluginError
from ragassay.retrieval.sparse import BM25Index, BM25Retriever
from ragassay.types import Hit, Passage, Query

pytest.importorskip("bm25s")

METHODS = ["lucene", "robertson", "atire", "bm25l", "bm25+"]
VOCABULARY = ["red", "fox", "blue", "whale", "naïve", "größe", "x9", "sea"]


def ask(*texts: str) -> list[Query]:
    return [Query(id=str(n), text=text, group="g") for n, text in enumerate(texts)]


def random_passages(rng: np.random.Generator, count: int, prefix: str) -> list[Passage]:
    return [
        Passage(
            id=f"{prefix}{n}",
            text=" ".join(rng.choice(VOCABULARY, size=int(rng.integers(0, 6)))),
            title=str(rng.choice(["", "sea fox"])),
        )
        for n in rng.permutation(count)
    ]


def build(corpus: Sequence[Passage], **options: Any) -> BM25Index:
    return BM25Retriever(**options).index(corpus, fingerprint="f", cache_dir=Path("unused"))


def plain(hits: Sequence[Hit]) -> list[tuple[str, int, float]]:
    return [(hit.passage.id, hit.rank, hit.score) for hit in hits]


CORPUS = [
    Passage(id="b", text="The red fox sleeps by the sea."),
    Passage(id="a", text="A blue whale swims in the sea, the deep sea."),
    Passage(id="c", text="Nothing of note."),
]


def test_scores_follow_the_formula() -> None:
    hits = build(CORPUS).search(ask("sea fox"), 3)[0]
    lengths = {"a": 6, "b": 4, "c": 2}  # without stop words
    average = 4.0

    def weight(df: int, tf: int, length: int) -> float:
        idf = math.log(1 + (3 - df + 0.5) / (df + 0.5))
        return idf * tf / (tf + 1.5 * (0.25 + 0.75 * length / average))

    wanted = {
        "a": weight(2, 2, lengths["a"]),
        "b": weight(2, 1, lengths["b"]) + weight(1, 1, lengths["b"]),
        "c": 0.0,
    }
    assert [hit.passage.id for hit in hits] == ["b", "a", "c"]
    for hit in hits:
        assert hit.score == pytest.approx(wanted[hit.passage.id], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_overlay_equals_an_index_built_from_scratch(method: str) -> None:
    for case in range(25):
        rng = np.random.default_rng(case)
        corpus = [*random_passages(rng, int(rng.integers(1, 20)), "p"), Passage(id="q", text="sea")]
        poison = random_passages(rng, int(rng.integers(1, 6)), "z")  # after the corpus by id, too
        queries = ask("red sea", "zzz", "", "größe größe x9", "the")
        k = int(rng.integers(1, 30))
        overlay = build(corpus, method=method).poisoned(queries, poison, k)
        scratch = build([*corpus, *poison], method=method).search(queries, k)
        assert list(map(plain, overlay)) == list(map(plain, scratch))


@pytest.mark.parametrize("method", METHODS)
def test_frozen_statistics_score_a_copy_as_the_library_scores_the_original(method: str) -> None:
    rng = np.random.default_rng(5)
    corpus = [*random_passages(rng, 12, "p"), Passage(id="q", text="sea")]
    index = build(corpus, method=method, statistics="frozen", b=0.6, k1=1.1, delta=0.4)
    copies = [Passage(id=f"copy {p.id}", text=p.text, title=p.title) for p in corpus]
    queries = ask("red sea fox fox", "naïve", "zzz")
    for clean, both in zip(
        index.search(queries, 99), index.poisoned(queries, copies, 99), strict=True
    ):
        scores = {hit.passage.id: hit.score for hit in both}
        assert len(scores) == 2 * len(corpus)
        for hit in clean:
            assert scores[hit.passage.id] == hit.score
            assert scores[f"copy {hit.passage.id}"] == hit.score


def test_frozen_and_rebuilt_differ_when_poison_makes_a_word_common() -> None:
    poison = [Passage(id=f"z{n}", text="fox fox unseen") for n in range(9)]
    query = ask("fox unseen")
    rebuilt = build(CORPUS).poisoned(query, poison, 12)[0]
    frozen = build(CORPUS, statistics="frozen").poisoned(query, poison, 12)[0]
    clean = build(CORPUS).search(query, 1)[0][0]
    score = {hit.passage.id: hit.score for hit in frozen}
    assert score["b"] == clean.score
    assert {hit.passage.id: hit.score for hit in rebuilt}["b"] < clean.score


def test_unknown_words_and_no_words_score_zero_and_fill_up_by_id() -> None:
    index = build(CORPUS)
    for text in ("zzz", "", "the of", "\U0001f98a", "\ud800"):
        assert plain(index.search(ask(text), 10)[0]) == [
            ("a", 1, 0.0),
            ("b", 2, 0.0),
            ("c", 3, 0.0),
        ]
        hits = index.poisoned(ask(text), [Passage(id="0", text="new text")], 10)[0]
        assert [hit.passage.id for hit in hits] == ["a", "b", "c", "0"]


def test_words_of_any_script_count() -> None:
    corpus = [Passage(id="a", text="größe и размер"), Passage(id="b", text="平均 サイズ")]
    index = build(corpus)
    for text, first in (("GRÖSSE Größe", "a"), ("размер", "a"), ("サイズ", "b")):
        assert index.search(ask(text), 1)[0][0].passage.id == first


def test_the_order_of_the_corpus_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    corpus = [*random_passages(rng, 30, "p"), Passage(id="q", text="sea")]
    poison = random_passages(rng, 5, "a")
    queries = ask("red sea", "blue whale", "zzz")
    one, other = build(corpus), build(corpus[::-1])
    assert one.search(queries, 9) == other.search(queries, 9)
    assert one.poisoned(queries, poison, 9) == other.poisoned(queries, poison[::-1], 9)
    assert one.poisoned(queries, [], 9) == one.search(queries, 9)


def test_equal_passages_rank_corpus_first_then_by_id() -> None:
    corpus = [Passage(id="m", text="red fox"), Passage(id="z", text="blue whale")]
    poison = [Passage(id="b", text="red fox"), Passage(id="a", text="red fox")]
    for statistics in ("rebuilt", "frozen"):
        hits = build(corpus, statistics=statistics).poisoned(ask("red fox"), poison, 3)[0]
        assert [hit.passage.id for hit in hits] == ["m", "a", "b"]


def test_titles_and_stop_words_are_options() -> None:
    corpus = [Passage(id="a", text="of note", title="fox"), Passage(id="b", text="the sea")]
    assert build(corpus).search(ask("fox"), 1)[0][0].score > 0
    assert build(corpus, titles=False).search(ask("fox"), 1)[0][0].score == 0
    assert build(corpus).search(ask("the"), 1)[0][0].score == 0
    assert build(corpus, stopwords="none").search(ask("the"), 1)[0][0].passage.id == "b"


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], "no passage"),
        ([Passage(id="a", text=""), Passage(id="b", text=" ")], "are empty"),
        ([Passage(id="a", text="the of"), Passage(id="b", text="x !")], "none of the 2 passages"),
        ([Passage(id="a", text="fox"), Passage(id="a", text="fox")], "share the id"),
    ],
)
def test_a_corpus_without_words_is_an_error(corpus: list[Passage], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(corpus)


def test_wrong_arguments_are_errors() -> None:
    index = build(CORPUS)
    with pytest.raises(DataError, match="id of a corpus passage"):
        index.poisoned(ask("x"), [Passage(id="a", text="x")], 1)
    with pytest.raises(ConfigError, match="k must be at least 1"):
        index.poisoned(ask("x"), [Passage(id="n", text="x")], 0)
    for wrong in ({"k1": 0.0}, {"b": 1.5}, {"delta": -1.0}, {"k1": math.nan}):
        with pytest.raises(ConfigError, match="need k1 > 0"):
            BM25Retriever(**wrong)


def test_it_is_built_by_name_and_its_identity_follows_the_options() -> None:
    found = plugins.find("retriever", "bm25")
    built = plugins.build(found, {"k1": 1, "method": "atire"})
    assert isinstance(built, plugins.Retriever)
    assert built.identity == BM25Retriever(k1=1.0, method="atire").identity
    assert built.identity != BM25Retriever().identity
    assert BM25Retriever(statistics="frozen").identity != BM25Retriever().identity
    assert not hasattr(build(CORPUS), "embed")
    with pytest.raises(PluginError, match="method"):
        plugins.build(found, {"method": "bm26"})


def test_the_library_does_not_chatter(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[int, int]] = []
    with caplog.at_level(logging.DEBUG):
        index = BM25Retriever().index(
            CORPUS,
            fingerprint="f",
            cache_dir=Path("unused"),
            progress=lambda *step: heard.append(tuple(step)),
        )
        index.search(ask("fox"), 1)
    assert not caplog.records
    assert heard == [(3, 3)]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(BackendUnavailable, match=r"needs bm25s .* pip install 'ragassay\[local\]'"):
        build(CORPUS)
