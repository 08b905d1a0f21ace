"""What the learned scorer reads of a passage in its context. Never where the passage comes from.

Source: "Ranking is not judgment", the authors' own scorer and its ablation of the length
feature. Which source a passage has is left out: that alone tells poison apart perfectly.

Deviations: apart from the length, the paper does not list its features; these are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay.defenses.contradiction import LLM, contradictions
from ragassay.defenses.rouge import rouge_l
from ragassay.defenses.surface import contained_share, word_count
from ragassay.errors import BackendUnavailable, ConfigError, DataError
from ragassay.matching import normalize_question
from ragassay.plugins import Tools
from ragassay.types import Hit, Query

TEXT_FEATURES = ("log_words", "containment", "rank", "max_rouge", "digits", "instruction_cues")
VECTOR_FEATURES = ("query_similarity", "max_similarity", "mean_similarity")
PERPLEXITY_FEATURES = ("perplexity", "perplexity_difference")
MODEL_FEATURES = ("contradiction",)
FEATURES = (*TEXT_FEATURES, *VECTOR_FEATURES, *PERPLEXITY_FEATURES, *MODEL_FEATURES)
DEFAULT_FEATURES = (*TEXT_FEATURES, *VECTOR_FEATURES, *PERPLEXITY_FEATURES)

Context = tuple[Query, Sequence[Hit]]
Labeled = tuple[Query, Sequence[Hit], Sequence[bool]]
Column = list[float]
_CUES = re.compile(
    r"\b(?:ignor(?:e|ing)|disregard\w*|forget|override|instructions?|prompt|you must|do not"
    r"|(?:answer|respond|reply|output) (?:only |with |that )+|correct answer is)\b"
    r"|\bonly (?:answer|output|reply)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureTable:
    """Measured candidates: passages in their contexts, with labels.

    Parameters
    ----------
    names : tuple of str, length m
        The features, in the order of the columns.
    skipped : tuple of str
        Features that were asked for and could not be had (no tool for perplexity).
    values : ndarray of float64, shape (n, m)
        NaN where a feature is not defined.
    poison : ndarray of bool, shape (n,)
        Labels.
    questions : tuple of str, length n
        The normalized question of each candidate: the unit of splits and of resampling.
    nli : str
        What judged contradictions, where they are a feature.
    """

    names: tuple[str, ...]
    skipped: tuple[str, ...]
    values: NDArray[np.float64]
    poison: NDArray[np.bool_]
    questions: tuple[str, ...]
    nli: str


def measure(
    candidates: Sequence[Labeled],
    tools: Tools,
    *,
    features: Sequence[str] = DEFAULT_FEATURES,
    nli: str = LLM,
) -> FeatureTable:
    """Measure labeled contexts once, for any number of trainings.

    Parameters
    ----------
    candidates : sequence of (query, hits, poison)
        Contexts as retrieved after injection, with a truth value for each hit.
    tools : Tools
        ``encode``; ``token_nll`` for perplexity, which is skipped and recorded where it is
        missing; ``ask`` and ``answer_prompt`` for contradictions.
    features : sequence of str
        Any of :data:`FEATURES`.
    nli : str
        For ``contradiction``: ``"llm"`` or the name of a cross-encoder.

    Raises
    ------
    ConfigError
        A feature is unknown or named twice.
    DataError
        A context has not one label for each hit.
    """
    check_names(features)
    for query, hits, poison in candidates:
        if len(hits) != len(poison):
            raise DataError(f"query {query.id!r}: {len(poison)} labels for {len(hits)} passages")
    missing = () if _nll_tool(tools) else PERPLEXITY_FEATURES
    names = tuple(name for name in features if name not in missing)
    rows = feature_rows([(query, hits) for query, hits, _ in candidates], names, tools, nli=nli)
    return FeatureTable(
        names=names,
        skipped=tuple(name for name in features if name in missing),
        values=np.concatenate([np.empty((0, len(names))), *rows]),
        poison=np.array([bool(label) for _, _, labels in candidates for label in labels]),
        questions=tuple(normalize_question(q.text) for q, hits, _ in candidates for _ in hits),
        nli=nli,
    )


def feature_rows(
    contexts: Sequence[Context], names: Sequence[str], tools: Tools, *, nli: str = LLM
) -> list[NDArray[np.float64]]:
    """Measure the passages of contexts: an array of shape (k, len(names)) for each.

    All texts are embedded in one call, and all perplexities taken in one.

    Raises
    ------
    BackendUnavailable
        Perplexity is asked for, and the tools have none.
    """
    vector_of = _embedded(contexts, tools) if {*names} & {*VECTOR_FEATURES} else {}
    nll_of = _token_nll(contexts, tools) if {*names} & {*PERPLEXITY_FEATURES} else {}
    rows = []
    for query, hits in contexts:
        columns = _text_columns(query, hits)
        if vector_of:
            columns |= _vector_columns(query, hits, vector_of)
        if nll_of:
            columns |= _perplexity_columns(hits, nll_of)
        if "contradiction" in names:
            columns["contradiction"] = _contradiction_column(query, hits, tools, nli)
        table = [columns[name] for name in names] if hits else []
        rows.append(np.array(table, dtype=np.float64).reshape(len(names), len(hits)).T)
    return rows


def check_names(features: Sequence[str]) -> None:
    """Check that features are known and named once.

    Raises
    ------
    ConfigError
        One is not.
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown:
        raise ConfigError(f"unknown feature {unknown[0]!r}; known: {', '.join(FEATURES)}")
    if not features or len(set(features)) != len(features):
        raise ConfigError(f"need features, each of them once, got {list(features)}")


# --------------------------------------------------------------------------------- internals


def _text_columns(query: Query, hits: Sequence[Hit]) -> dict[str, Column]:
    texts = [hit.passage.text for hit in hits]
    return {
        "log_words": [math.log(max(word_count(text), 1)) for text in texts],
        "containment": [contained_share(query.text, text) for text in texts],
        "rank": [float(hit.rank) for hit in hits],
        "max_rouge": [
            max((rouge_l(text, other) for j, other in enumerate(texts) if j != i), default=0.0)
            for i, text in enumerate(texts)
        ],
        "digits": [math.log1p(sum(c.isdigit() for c in text)) for text in texts],
        "instruction_cues": [math.log1p(len(_CUES.findall(text))) for text in texts],
    }


def _embedded(contexts: Sequence[Context], tools: Tools) -> dict[str, NDArray[np.float64]]:
    texts = list(dict.fromkeys(
        text for query, hits in contexts for text in (query.text, *(h.passage.text for h in hits))
    ))  # fmt: skip
    if not texts:
        return {}
    vectors = np.asarray(tools.encode(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"the encoder must return finite vectors of shape ({len(texts)}, d) for "
            f"{len(texts)} texts, got shape {vectors.shape}"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return dict(zip(texts, vectors / np.where(lengths > 0, lengths, 1.0), strict=True))


def _vector_columns(
    query: Query, hits: Sequence[Hit], vector_of: dict[str, NDArray[np.float64]]
) -> dict[str, Column]:
    vectors = [vector_of[hit.passage.text] for hit in hits]
    others = [
        [float(v @ w) for j, w in enumerate(vectors) if j != i] for i, v in enumerate(vectors)
    ]
    return {
        "query_similarity": [float(vector_of[query.text] @ vector) for vector in vectors],
        "max_similarity": [max(each, default=0.0) for each in others],
        "mean_similarity": [sum(each) / len(each) if each else 0.0 for each in others],
    }


def _nll_tool(tools: Tools) -> Callable[[Sequence[str]], Any] | None:
    return getattr(tools, "token_nll", None)


def _token_nll(contexts: Sequence[Context], tools: Tools) -> dict[str, NDArray[np.float64]]:
    ask = _nll_tool(tools)
    if ask is None:
        raise BackendUnavailable(
            "perplexity features need a language model that gives the probability of each token; "
            "choose a generator or a language model that does, or a scorer without them"
        )
    texts = list(dict.fromkeys(hit.passage.text for _, hits in contexts for hit in hits))
    found = ask(texts) if texts else []
    return {t: np.asarray(nll, dtype=np.float64) for t, nll in zip(texts, found, strict=True)}


def _perplexity_columns(
    hits: Sequence[Hit], nll_of: dict[str, NDArray[np.float64]]
) -> dict[str, Column]:
    """Logarithms, so that one odd token does not outweigh everything else."""
    values = [nll_of[hit.passage.text] for hit in hits]
    halves = [(nll[: len(nll) // 2], nll[len(nll) // 2 :]) for nll in values]
    return {
        "perplexity": [float(nll.mean()) if len(nll) else math.nan for nll in values],
        "perplexity_difference": [
            abs(float(a.mean() - b.mean())) if len(a) and len(b) else math.nan for a, b in halves
        ],
    }


def _contradiction_column(query: Query, hits: Sequence[Hit], tools: Tools, nli: str) -> Column:
    asked = [tools.answer_prompt(query, [hit]) for hit in hits]
    graph = contradictions(query.text, tools.ask(asked) if asked else [], tools, nli=nli)
    degrees = [graph.degree_share(i) for i in range(len(hits))]
    return [math.nan if degree is None else degree for degree in degrees]
