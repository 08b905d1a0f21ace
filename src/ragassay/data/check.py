"""What is odd about a data set, before a model is asked: ``ragassay data check``.

The reader has already refused what is wrong in form. Here come the faults of content that
bend results in silence: a wrong answer that stands in the question, a poison text that lacks
the answer it argues for, a correct answer inside the wrong one, two spellings of one passage.

Texts are compared by whole tokens, case-folded, after Unicode compatibility normalization;
decimal points and signs belong to their number.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ragassay.data.assembly import listed
from ragassay.types import Dataset, Target

LONG_PASSAGE_WORDS = 512
_TOKEN = re.compile(r"(?<![\w.,])[+-]?\d+(?:[.,]\d+)*(?!\w)|\w+")
_SHOWN = 3

_Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation: how bad, on what part of the data set, and what it is."""

    severity: _Severity
    where: str
    message: str


def check(dataset: Dataset) -> list[Finding]:
    """Look through a data set.

    Returns
    -------
    list of Finding
        Counts first, then corpus, questions, targets and drafts. An ``error`` makes results
        meaningless, a ``warning`` bends them, a ``note`` is a fact to know.
    """
    return [
        *_counts(dataset),
        *_references_between_parts(dataset),
        *_corpus(dataset),
        *_questions(dataset),
        *_targets(dataset),
        *_drafts(dataset),
    ]


def tokens(text: str) -> str:
    """Return the case-folded tokens of a text, each with a space on both sides.

    Examples
    --------
    >>> tokens("It is -3.14, Émile!")
    ' it is -3.14 émile '
    """
    found = _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())
    return f" {' '.join(found)} " if found else ""


def has_mojibake(text: str) -> bool:
    """Tell whether a text holds UTF-8 that was read as Windows-1252 (``â€™`` for ``’``).

    Sequences of characters that such a misreading produces are turned back into bytes; they
    count where the bytes are valid UTF-8. What may as well be a letter before punctuation
    (``É»``) counts only after the three letters that misreadings mostly begin with.

    Examples
    --------
    >>> has_mojibake("the womenâ€™s cafÃ©"), has_mojibake("the women’s café, château")
    (True, False)
    """
    for run in _MISREAD.findall(text):
        if run[1] in _PUNCTUATION and run[0] not in "ÂÃâ":
            continue
        try:
            bytes(_BYTE_OF[char] for char in run).decode("utf-8")
        except UnicodeDecodeError:
            continue
        return True
    return False


# ---------------------------------------------------------------------------------- the parts


def _counts(dataset: Dataset) -> Iterator[Finding]:
    targeted = [query for query in dataset.queries if _wanted(dataset, query.id)]
    texts = sum(len(drafts) for drafts in dataset.drafts.values())
    yield _note("corpus", f"{len(dataset.corpus)} passages")
    yield _note(
        "queries",
        f"{len(dataset.queries)} questions, {len(targeted)} with a target in "
        f"{len({query.group for query in targeted})} injection groups",
    )
    yield _note("drafts", f"{texts} texts for {len(dataset.drafts)} questions")
    if not dataset.has_qrels:
        yield _note("qrels", "relevance is not annotated: no figure can use gold passages")
        return
    gold = sum(len(target.gold_ids) for target in dataset.targets.values())
    yield _note("qrels", f"{gold} gold passages")
    bare = [
        query.id
        for query in dataset.queries
        if query.id not in dataset.targets or not dataset.targets[query.id].gold_ids
    ]
    if bare:
        yield _note("qrels", f"{len(bare)} questions have no gold passage: {_some(bare)}")


def _references_between_parts(dataset: Dataset) -> Iterator[Finding]:
    passages = Counter(passage.id for passage in dataset.corpus)
    queries = Counter(query.id for query in dataset.queries)
    faults = {
        "passage ids occur twice": [key for key, count in passages.items() if count > 1],
        "question ids occur twice": [key for key, count in queries.items() if count > 1],
        "questions have no entry in the targets": [
            key for key in queries if key not in dataset.targets
        ],
        "targets belong to no question": [key for key in dataset.targets if key not in queries],
        "targets stand under another question's id": [
            key for key, target in dataset.targets.items() if target.query_id != key
        ],
        "questions with drafts do not exist": [key for key in dataset.drafts if key not in queries],
        "gold passages are not in the corpus": [
            gold
            for target in dataset.targets.values()
            for gold in target.gold_ids
            if gold not in passages
        ],
    }
    for message, ids in faults.items():
        if ids:
            yield Finding(
                severity="error", where="ids", message=f"{len(ids)} {message}: {_some(ids)}"
            )


def _corpus(dataset: Dataset) -> Iterator[Finding]:
    empty = [passage.id for passage in dataset.corpus if not passage.text.strip()]
    if empty:
        yield _warning("corpus", f"{len(empty)} passages have no text: {_some(empty)}")
    full = [passage for passage in dataset.corpus if passage.text.strip()]
    twins = _twins((passage.id, passage.text) for passage in full)
    if twins:
        yield _warning(
            "corpus", f"{len(twins)} passages repeat the text of another one: {_some(twins)}"
        )
    long = [passage.id for passage in full if len(passage.text.split()) > LONG_PASSAGE_WORDS]
    if long:
        yield _warning(
            "corpus",
            f"{len(long)} passages are longer than {LONG_PASSAGE_WORDS} words; encoders and "
            f"prompts may cut them: {_some(long)}",
        )


def _questions(dataset: Dataset) -> Iterator[Finding]:
    twins = _twins((query.id, query.text) for query in dataset.queries)
    if twins:
        yield _warning("queries", f"{len(twins)} questions repeat another one: {_some(twins)}")
    empty = [query.id for query in dataset.queries if not tokens(query.text)]
    if empty:
        yield Finding(
            severity="error",
            where="queries",
            message=f"{len(empty)} questions have no word: {_some(empty)}",
        )


def _targets(dataset: Dataset) -> Iterator[Finding]:
    question = {query.id: tokens(query.text) for query in dataset.queries}
    all_targets = [target for key, target in dataset.targets.items() if key in question]
    targeted = [target for target in all_targets if target.wanted]
    rules: list[tuple[_Severity, str, Sequence[Target], Callable[[Target], bool]]] = [
        (
            "error",
            "an answer without a word or number (it would match everything)",
            targeted,
            _has_empty_answer,
        ),
        (
            "warning",
            "no target and an accepted answer without a word or number",
            [target for target in all_targets if not target.wanted],
            _has_empty_answer,
        ),
        ("warning", "a target but no accepted answer", targeted, lambda t: not t.references),
        (
            "error",
            "a wanted answer that equals an accepted one",
            targeted,
            lambda t: bool(_set(t.wanted) & _set(t.references)),
        ),
        (
            "warning",
            "an accepted answer that contains the wanted one",
            targeted,
            lambda t: _inside(t.wanted, t.references),
        ),
        (
            "warning",
            "a wanted answer that contains an accepted one",
            targeted,
            lambda t: _inside(t.references, t.wanted),
        ),
        (
            "warning",
            "the wanted answer in the question",
            targeted,
            lambda t: any(answer in question[t.query_id] for answer in _set(t.wanted)),
        ),
        (
            "warning",
            "an accepted answer in the question",
            all_targets,
            lambda t: any(answer in question[t.query_id] for answer in _set(t.references)),
        ),
    ]
    for severity, fault, among, holds in rules:
        ids = [target.query_id for target in among if target.query_id in question and holds(target)]
        if ids:
            yield Finding(
                severity=severity,
                where="targets",
                message=f"{len(ids)} of {len(among)} questions have {fault}: {_some(ids)}",
            )


def _drafts(dataset: Dataset) -> Iterator[Finding]:
    without = [
        key
        for key, target in dataset.targets.items()
        if target.wanted and not dataset.drafts.get(key)
    ]
    if without and dataset.drafts:
        yield _warning("drafts", f"{len(without)} targets have no text: {_some(without)}")
    flat = [
        (f"{key}[{number}]", key, text)
        for key, texts in dataset.drafts.items()
        for number, text in enumerate(texts, start=1)
    ]
    if not flat:
        return
    whole = [key for key in dataset.drafts if _is_complete(dataset, key)]
    if whole:
        yield _note(
            "drafts",
            f"the texts of {len(whole)} questions are whole passages with their retrieval part; "
            "an attack that adds a question prefix doubles it",
        )
    normalized = [tokens(text) for _, _, text in flat]
    answers = {
        key: (_set(target.wanted), _set(target.references))
        for key, target in dataset.targets.items()
    }
    lacking, truthful = [], []
    for (place, key, _), text in zip(flat, normalized, strict=True):
        wanted, references = answers.get(key, (set(), set()))
        if wanted and not any(answer in text for answer in wanted):
            lacking.append(place)
        if any(answer in text for answer in references):
            truthful.append(place)
    groups = {
        "do not contain the answer they argue for": lacking,
        "contain an accepted answer": truthful,
        "repeat another text": _twins((place, text) for place, _, text in flat),
        "have no word": [
            place for (place, _, _), text in zip(flat, normalized, strict=True) if not text
        ],
        "hold UTF-8 that was read as Windows-1252 or Latin-1": [
            place for place, _, text in flat if has_mojibake(text)
        ],
    }
    for fault, places in groups.items():
        if places:
            share = f"{len(places)} of {len(flat)} texts ({len(places) / len(flat):.1%})"
            yield _warning("drafts", f"{share} {fault}: {_some(places)}")


# --------------------------------------------------------------------------------- internals


def _note(where: str, message: str) -> Finding:
    return Finding(severity="note", where=where, message=message)


def _warning(where: str, message: str) -> Finding:
    return Finding(severity="warning", where=where, message=message)


def _some(ids: Sequence[str]) -> str:
    return listed(ids, _SHOWN)


def _wanted(dataset: Dataset, query_id: str) -> bool:
    target = dataset.targets.get(query_id)
    return target is not None and bool(target.wanted)


def _is_complete(dataset: Dataset, query_id: str) -> bool:
    released = dataset.metadata.get(query_id, {}).get("released_target")
    return isinstance(released, Mapping) and released.get("complete") is True


def _has_empty_answer(target: Target) -> bool:
    return not all(tokens(answer) for answer in (*target.references, *target.wanted))


def _set(answers: Iterable[str]) -> set[str]:
    return {normalized for answer in answers if (normalized := tokens(answer))}


def _inside(parts: Iterable[str], wholes: Iterable[str]) -> bool:
    return any(part != whole and part in whole for part in _set(parts) for whole in _set(wholes))


def _twins(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Name every text that repeats an earlier one up to case and white space."""
    seen: set[bytes] = set()
    twins = []
    for place, text in texts:
        plain = " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(plain, digest_size=16).digest()
        if key in seen:
            twins.append(place)
        seen.add(key)
    return twins


def _misreadings() -> dict[str, int]:
    """Map each character that a byte from 0x80 is misread as to that byte."""
    found = {}
    for value in range(0x80, 0x100):
        found[chr(value)] = value  # what Windows-1252 leaves undefined is read as Latin-1
        try:
            found[bytes([value]).decode("cp1252")] = value
        except UnicodeDecodeError:
            continue
    return found


_BYTE_OF = _misreadings()
_PUNCTUATION = "\u00a0»”’“‘…–—"


def _misread_sequences() -> re.Pattern[str]:
    """Match what the two, three or four bytes of one character are misread as."""

    def among(first: int, last: int) -> str:
        return "".join(re.escape(c) for c, value in _BYTE_OF.items() if first <= value <= last)

    tail = f"[{among(0x80, 0xBF)}]"
    leads = ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3))
    return re.compile("|".join(f"[{among(low, high)}]{tail * n}" for low, high, n in leads))


_MISREAD = _misread_sequences()
