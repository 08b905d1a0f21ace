"""Sentences of a passage and the finite verbs in them that can be negated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ragassay.tampering.language import Analysis, Word
from ragassay.tampering.words import word_set

# Endings after which a full stop ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|st|jr|sr|vs|etc|prof|gen|col|rev|no|vol|approx|ca|c|inc|ltd|corp|co"
    r"|capt|lt|sgt|gov|sen|rep|e\.g|i\.e|cf|al|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
    r"|(?:\A|[\s.(])[A-Za-z])\Z",
    re.I,
)
_BREAK = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s)|\n+")
NEGATED = re.compile(
    r"n['’]t\b|\b(?:not|never|no|none|nobody|nothing|nowhere|neither|nor|cannot|without|hardly"
    r"|scarcely|barely|rarely|seldom|denie[ds]|deny|denying|refus(?:es|ed|ing|e)|fail(?:s|ed)?"
    r"|unable|lack(?:s|ed)?|dont|doesnt|didnt|isnt|arent|wasnt|werent|wont|cant)\b",
    re.I,
)
_FINITE = frozenset({"VBD", "VBZ", "VBP", "MD"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass", "expl", "csubj", "csubjpass", "attr"})
_OWN = _SUBJECTS | {"aux", "auxpass"}
_BE = frozenset({"is", "are", "was", "were", "am", "'s", "’s", "'re", "’re", "'m", "’m"})
_HAVE = frozenset({"has", "have", "had", "'s", "’s", "'ve", "’ve", "'d", "’d"})
_MODALS = word_set("can could will would shall should may might must 'll ’ll 'd ’d wo ca")
_BEFORE_DENIAL = frozenset({"also", "since", "now", "then", "later"})
_PARTICIPLES = word_set("born called named titled entitled dubbed nicknamed abbreviated")
_PLURALS = word_set("shows films stars plays books songs works roles hits tours games acts records")
_DO = frozenset({"do", "does", "did"})
MAX_SENTENCE = 1_500

Mode = Literal["insert", "do"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A finite verb that can be negated: after itself ("insert"), or with do-support ("do").

    ``word`` is the auxiliary or the main verb. ``past`` tells that "never" fits as well. The
    denial stands at ``stop``: behind the auxiliary and an adverb that goes before it ("also").
    """

    word: Word
    mode: Mode
    past: bool
    stop: int
    participle: bool = False


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Cut a text into sentences, by signs alone, so that an edit inside moves no cut.

    Examples
    --------
    >>> text = "Dr. A. Stone left. He came back!"
    >>> [text[start:stop] for start, stop in sentence_spans(text)]
    ['Dr. A. Stone left.', 'He came back!']
    """
    spans = []
    start = 0
    for match in [*_BREAK.finditer(text), None]:
        stop = len(text) if match is None else match.end()
        if match is not None and match[0] == ".":
            before = text[max(start, match.start() - 12) : match.start()]
            if _ABBREVIATION.search(before):
                continue
        piece = text[start:stop]
        left = start + len(piece) - len(piece.lstrip())
        right = start + len(piece.rstrip())
        if left < right:
            spans.append((left, right))
        start = stop
    return spans


def is_negated(sentence: str) -> bool:
    """Tell whether a sentence holds a negation already, anywhere in it."""
    return NEGATED.search(sentence) is not None


def predicates(sentence: str, analysis: Analysis) -> Iterator[Predicate]:
    """Yield what can be negated in a sentence, the main clause first."""
    words = analysis.words
    if sentence.rstrip().endswith("?"):
        return
    children: dict[int, list[int]] = {}
    for at, word in enumerate(words):
        if word.head != at:
            children.setdefault(word.head, []).append(at)
    for verb in _verbs(words, children):
        found = _predicate(sentence, words, children, verb)
        if found is not None and not _in_quotes(sentence, found.word.start):
            yield found


def _verbs(words: Sequence[Word], children: dict[int, list[int]]) -> list[int]:
    """Return the verbs with a subject: roots, what is joined to them, then all others."""
    ranks = []
    for at, word in enumerate(words):
        if word.pos not in {"VERB", "AUX"} or word.dep in {"aux", "auxpass"}:
            continue
        root = word.dep == "ROOT"
        joined = word.dep == "conj" and words[word.head].dep == "ROOT"
        rank = 0 if root else 1 if joined else 2 if word.dep == "ccomp" else 3
        if word.dep in {"advcl", "csubj", "pcomp", "xcomp", "acl"}:
            continue
        ranks.append((rank, at))
    return [at for _, at in sorted(ranks)]


def _predicate(
    sentence: str, words: Sequence[Word], children: dict[int, list[int]], verb: int
) -> Predicate | None:
    own = children.get(verb, [])
    subjects = [at for at in own if words[at].dep in _SUBJECTS and at < verb]
    if not subjects and words[verb].dep == "conj" and words[verb].tag in _FINITE:
        head = children.get(words[verb].head, [])
        subjects = [at for at in head if words[at].dep in _SUBJECTS]
    if not subjects:
        return None
    helpers = [at for at in own if words[at].dep in {"aux", "auxpass"} and at < verb]
    finite = next((at for at in helpers if words[at].tag in _FINITE), None)
    if finite is not None:
        if finite < max(at for at in subjects):
            return None  # inverted
        return _with_helper(sentence, words, finite, verb)
    if helpers or words[verb].tag not in _FINITE:
        return None
    if words[verb].text.lower() in _BE:
        return _with_helper(sentence, words, verb, verb)
    return _with_do(sentence, words, children, verb)


def _with_helper(sentence: str, words: Sequence[Word], at: int, verb: int) -> Predicate | None:
    word = words[at]
    lower = word.text.lower()
    if lower not in _BE | _HAVE | _MODALS | _DO or lower in {"wo", "ca"}:
        return None
    if at + 1 < len(words) and words[at + 1].text.lower() in {"n't", "n’t", "better", "rather"}:
        return None
    if not word.text.islower() or sentence[word.stop : word.stop + 1].isalnum():
        return None  # a word of a title; a part of a word
    past = lower in {"was", "were", "had", "has", "have"}
    stop = word.stop
    if at + 1 < len(words) and words[at + 1].text in _BEFORE_DENIAL:
        stop = words[at + 1].stop
    return Predicate(word, "insert", past, stop, words[verb].tag == "VBN")


def _with_do(
    sentence: str, words: Sequence[Word], children: dict[int, list[int]], verb: int
) -> Predicate | None:
    """Find the verb that takes do-support: of verbs in a row the last, so that all agree."""
    last = verb
    while True:
        joined = [
            at for at in children.get(last, [])
            if words[at].dep == "conj" and words[at].tag in _FINITE and words[at].pos == "VERB"
            and not any(words[c].dep in _OWN for c in children.get(at, []))
        ]  # fmt: skip
        if not joined:
            break
        last = joined[-1]
    word = words[last]
    if not _takes_do(sentence, words, last):
        return None
    return Predicate(word, "do", word.tag == "VBD", word.stop)


def _takes_do(sentence: str, words: Sequence[Word], at: int) -> bool:
    word = words[at]
    if word.tag not in {"VBD", "VBZ", "VBP"} or not word.text.isalpha():
        return False
    if not word.text.islower():
        return False  # a word of a title
    before = words[at - 1].text if at else ""
    if word.tag == "VBD" and before in {"(", ",", "-LRB-", "-", "-RSB-", "-RRB-", ")"}:
        return False  # rather a participle: "(abbreviated X)"
    if before in {"only", "just", "even"} or word.text in _PARTICIPLES:
        return False
    if word.tag == "VBZ" and word.text in _PLURALS and words[at - 1].tag == "NN":
        return False  # "television shows"
    if sentence[max(0, word.start - 1) : word.start] in {"-", "'", "’"}:
        return False
    if sentence[word.stop : word.stop + 1] in {"-", "'", "’"}:
        return False
    if word.text.lower() in _BE | {"be", "been", "wish", "dare", "need", "ought"}:
        return False
    lemma = word.lemma.lower()
    if not lemma.isascii() or not lemma.isalpha() or lemma == "be":
        return False
    after = words[at + 1].text.lower() if at + 1 < len(words) else ""
    if word.tag == "VBD" and after == "by":
        return False  # rather a participle
    return is_form_of(word.text.lower(), lemma, word.tag)


def is_form_of(form: str, lemma: str, tag: str) -> bool:
    """Tell whether a verb's form can come from a lemma, as a check on tagger and lemmatizer.

    Examples
    --------
    >>> is_form_of("plays", "play", "VBZ"), is_form_of("stars", "st", "VBZ")
    (True, False)
    """
    if tag == "VBP":
        return form == lemma
    if tag == "VBZ":
        return form in {lemma + "s", lemma + "es", lemma[:-1] + "ies"} or (form, lemma) in {
            ("has", "have"), ("does", "do"),
        }  # fmt: skip
    if form.endswith("ed") and lemma + "d" != form:
        double = lemma + lemma[-1:] + "ed"
        return form in {lemma + "ed", double, lemma[:-1] + "ied"} or form in {
            lemma[:-1] + "ed" if lemma.endswith("e") else "", "fed", "led", "bled", "bred", "fled",
            "shed", "sped", "wed",
        }  # fmt: skip
    return form[:1] == lemma[:1] or (form, lemma) == ("went", "go")


def _in_quotes(sentence: str, position: int) -> bool:
    before = sentence[:position]
    straight = before.count('"') % 2 == 1
    curly = before.rfind("“") > before.rfind("”")
    tokenized = before.count("``") > before.count("''")
    return straight or curly or tokenized
