"""Where the candidates stand in an answer, in whatever form they are written.

A candidate is the attacker's answer or a reference. Beside the form given, the same number
in digits or words, the same date in another order, singular or plural, a person's surname and
a county or river without that word count as the same answer, each where it is safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product

from ragassay.matching import Token, phrase, tokenize
from ragassay.scoring.endorsement.words import word_list, word_set

_UNITS = word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = word_list("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12,
    **{f"{word}th": n for n, word in enumerate(_UNITS) if n not in {0, 1, 2, 3, 5, 8, 9, 12}},
    **{f"{word[:-1]}ieth": 10 * n for n, word in enumerate(_TENS) if n > 1},
}  # fmt: skip
_ORDINAL_WORD = {n: word for word, n in _ORDINALS.items()}
_CARDINALS = {word: n for n, word in enumerate(_UNITS)} | {
    word: 10 * n for n, word in enumerate(_TENS) if n > 1
}
_MONTHS = word_list(
    "january february march april may june july august september october november december"
)
_MONTH = {name: n + 1 for n, name in enumerate(_MONTHS)} | {
    name[:3]: n + 1 for n, name in enumerate(_MONTHS)
}
_DIGITS = re.compile(r"(\d{1,7})(st|nd|rd|th)?\Z")
_GENERIC = frozenset({"county", "river", "parish", "fc", "inc", "corp", "ltd"})
# Last words of names that are not persons' names.
_NOT_SURNAMES = _GENERIC | word_set(
    """
    amendment army award band bank bay beach blues bridge building castle centre center
    church city club college company corporation council country court cup day district
    empire festival force games group hall high hotel house institute island islands king
    kingdom lake lamp league library light line magazine mountain mountains mosque museum
    navy ocean palace park party peninsula plan province queen rail railroad railway region
    republic road school sea series service society speedway square stadium state states
    station street studios system team temple territory theatre theater tower town treaty
    trophy union unit university valley village war wall world zone
    """
)
# "York" is not named by "New York".
_NAME_PREFIXES = word_set(
    "new north south east west northern southern eastern western upper lower great saint st san "
    "santa port fort los las el old mount"
)
_COUNTED = word_set(
    "document documents passage passages context contexts source sources article text snippet "
    "paragraph chapter step option section item note evidence doc number"
)
_MAX_VARIANTS = 24
_MAX_WORDS = 24  # of a form that is looked for in other spellings too


@dataclass(frozen=True, slots=True)
class Mention:
    """A candidate named in the answer: ``answer[start:stop]``, from token ``first`` on."""

    label: str
    start: int
    stop: int
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class _Form:
    words: tuple[str, ...]
    label: str
    partial: bool = False  # a surname, which could be another person's


class Finder:
    """Finds every mention of the candidates in one pass over the tokens."""

    def __init__(self, candidates: Sequence[tuple[str, Sequence[str]]], question: str) -> None:
        self._index: dict[str, list[_Form]] = {}
        asked = frozenset(token.text for token in tokenize(question))
        every = [form for _, forms in candidates for form in forms]
        known: set[tuple[tuple[str, ...], str]] = set()
        for label, forms in candidates:
            for form in forms:
                rivals = [other for other in every if other not in forms]
                found = [_Form(words, label) for words in variants(form)]
                found += [_Form(words, label, True) for words in _surnames(form, rivals, asked)]
                for each in found:
                    if (each.words, label) not in known:
                        known.add((each.words, label))
                        self._index.setdefault(each.words[0], []).append(each)
        for each_list in self._index.values():
            each_list.sort(key=lambda form: -len(form.words))

    def find(self, answer: str, tokens: Sequence[Token]) -> list[Mention]:
        """Return the mentions in text order; one inside a longer one does not count."""
        found: list[Mention] = []
        texts = [token.text for token in tokens]
        for at, text in enumerate(texts):
            taken: set[str] = set()
            for form in self._index.get(text, ()):
                stop = at + len(form.words)
                if form.label in taken or tuple(texts[at:stop]) != form.words:
                    continue
                if _is_other_name(answer, tokens, at, stop, form):
                    continue
                taken.add(form.label)
                start, end = tokens[at].start, tokens[stop - 1].stop
                found.append(Mention(form.label, start, end, at, len(form.words)))
        return list(_outermost(found))


def _outermost(mentions: Sequence[Mention]) -> Iterator[Mention]:
    reach = (-1, -1)
    for mention in sorted(mentions, key=lambda m: (m.start, -m.stop)):
        inside = reach[0] <= mention.start and mention.stop <= reach[1]
        if inside and (mention.start, mention.stop) != reach:
            continue
        reach = (mention.start, mention.stop)
        yield mention


def _is_other_name(answer: str, tokens: Sequence[Token], at: int, stop: int, form: _Form) -> bool:
    """Tell whether the words are part of another name, or number a document or a list."""
    start, end = tokens[at].start, tokens[stop - 1].stop
    before = tokens[at - 1] if at else None
    if form.partial and not answer[start].isupper():
        return True
    if len(form.words) == 1:
        if (
            answer[end : end + 1] in {"-", "\u2011", "\u2010"}
            and answer[end + 1 : end + 2].isupper()
        ):
            return True
        if form.words[0].isdecimal() and _is_label(answer, before, start, end):
            return True
    if before is None or answer[before.stop : start] not in {" ", ". ", "-", "\u00a0"}:
        return False
    capital = answer[before.start].isupper()
    if capital and before.text in _NAME_PREFIXES and answer[start].isupper():
        return not form.words[0].isdecimal()
    if form.partial:  # "Mary Stone" is not Amalia Stone; "Mr. Stone" may be
        title = before.text in {"mr", "mrs", "ms", "dr", "sir", "the", "by", "that", "and"}
        first = at - 1 == 0 or answer[max(0, before.start - 2) : before.start].strip() in {
            ".",
            "\n",
        }
        return capital and not title and not (first and before.text in _OPENERS)
    return False


_OPENERS = word_set("it was is by yes no so hence thus therefore then here because but")


def _is_label(answer: str, before: Token | None, start: int, end: int) -> bool:
    if (
        before is not None
        and before.text in _COUNTED
        and answer[before.stop : start].strip() in {"", "#"}
    ):
        return True
    line = answer.rfind("\n", 0, start) + 1
    opens = not answer[line:start].strip(" \t*#-")
    return opens and answer[end : end + 2] in {". ", ") "}


# ----------------------------------------------------------------------------------- variants


@lru_cache(maxsize=16_384)
def variants(form: str) -> tuple[tuple[str, ...], ...]:
    """Return the token sequences that say the same as a form; the form itself comes first.

    Examples
    --------
    >>> variants("two years")
    (('two', 'years'), ('two', 'year'), ('2', 'years'), ('2', 'year'))
    >>> variants("4th Amendment")[2]
    ('fourth', 'amendment')
    """
    words = phrase(form)
    if not words or len(words) > _MAX_WORDS:
        return (words,) if words else ()
    dates = _dates(words)
    if dates:
        return (words, *(date for date in dates if date != words))
    choices: list[tuple[tuple[str, ...], ...]] = list(_numbers(words))
    if words[-1].isalpha():
        choices[-1] = choices[-1] + tuple(
            (*each[:-1], other) for each in choices[-1][:1] for other in _inflections(each[-1])
        )
    found = [
        tuple(w for part in parts for w in part)
        for parts in islice(product(*choices), 4 * _MAX_VARIANTS)
    ]
    if len(words) > 1 and words[-1] in _GENERIC and not words[0].isdecimal():
        found.append(words[:-1])
    return tuple(islice(dict.fromkeys(found), _MAX_VARIANTS))


def _inflections(word: str) -> Iterator[str]:
    """Yield the other number of a noun (by its ending; none for a number word)."""
    if len(word) < 4 or word in _CARDINALS or word in _ORDINALS or not word.isascii():
        return
    if word.endswith("ies"):
        yield word[:-3] + "y"
    elif word.endswith(("ches", "shes", "xes", "sses")):
        yield word[:-2]
    elif word.endswith("s"):
        if not word.endswith(("ss", "us", "is")):
            yield word[:-1]
    elif word.endswith("y") and word[-2] not in "aeiou":
        yield word[:-1] + "ies"
    elif word.endswith(("ch", "sh", "x")):
        yield word + "es"
    else:
        yield word + "s"


def _numbers(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield the ways to write each part of a phrase; the first is the one given."""
    at = 0
    while at < len(words):
        size, value, ordinal = _read_number(words, at)
        given = tuple(words[at : at + max(size, 1)])
        at += max(size, 1)
        if not size or (value == 1 and len(words) == 1):
            yield (given,)  # a lone "one" is mostly a pronoun
            continue
        ways = [given, (f"{value}{_suffix(value)}",) if ordinal else (str(value),)]
        if value < 10_000 and not (value == 0 or 1100 <= value < 2100):
            ways += [_spell(value, ordinal, joined) for joined in (False, True)]
        yield tuple(dict.fromkeys(ways))


def _read_number(words: Sequence[str], at: int) -> tuple[int, int, bool]:
    """Return how many words from ``at`` on make a number, its value, and if it is ordinal."""
    digits = _DIGITS.match(words[at])
    if digits:
        return 1, int(digits[1]), digits[2] is not None
    total = part = size = 0
    for place, word in enumerate(words[at:], 1):
        if word in _CARDINALS:
            part += _CARDINALS[word]
        elif word in _ORDINALS:
            return place, total + part + _ORDINALS[word], True
        elif word == "hundred" and part:
            part *= 100
        elif word == "thousand" and part:
            total, part = total + part * 1000, 0
        elif word == "and" and size:
            continue
        else:
            break
        size = place
    return size, total + part, False


def _suffix(value: int) -> str:
    if value % 100 in {11, 12, 13}:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")


def _spell(value: int, ordinal: bool, joined: bool) -> tuple[str, ...]:
    """Spell a number below 10,000; ``joined`` puts "and" after the hundreds."""
    words: list[str] = []
    if value >= 1000:
        words += [_UNITS[value // 1000], "thousand"]
    if value % 1000 >= 100:
        words += [_UNITS[value % 1000 // 100], "hundred"]
    rest = value % 100
    if rest and words and joined:
        words.append("and")
    if rest and ordinal and rest in _ORDINAL_WORD:
        return (*words, _ORDINAL_WORD[rest])
    if rest >= 20:
        words.append(_TENS[rest // 10])
        rest %= 10
    if rest:
        words.append(_ORDINAL_WORD[rest] if ordinal else _UNITS[rest])
    return tuple(words)


def _dates(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the ways to write a date, if the phrase is one (day and month, year optional)."""
    month = day = year = 0
    name = ""
    for word in words:
        digits = _DIGITS.match(word)
        if word in _MONTH and not month:
            month, name = _MONTH[word], _MONTHS[_MONTH[word] - 1]
        elif digits and len(digits[1]) <= 2 and not day:
            day = int(digits[1])
        elif digits and len(digits[1]) == 4 and not year:
            year = int(digits[1])
        elif word not in {"of", "the"}:
            return []
    if not month or not 1 <= day <= 31:
        return []
    tail = (str(year),) if year else ()
    ways = []
    for month_name in (name, name[:3]):
        for number in (str(day), f"{day}{_suffix(day)}", f"0{day}" if day < 10 else str(day)):
            ways += [(month_name, number, *tail), (number, month_name, *tail)]
            ways += [(number, "of", month_name, *tail)]
    if year:
        ways.append((str(year), f"{month:02d}", f"{day:02d}"))
    return list(dict.fromkeys(ways))


def _surnames(form: str, rivals: Sequence[str], asked: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield a person's surname, and first name or initial with it, where not ambiguous."""
    names = [word.strip(".,'\"()") for word in form.split()]
    if not 2 <= len(names) <= 4:
        return
    if not all(len(n) > 0 and n[0].isupper() and n.replace("-", "").isalpha() for n in names):
        return
    words = phrase(form)
    last = words[-1]
    taken = {word for rival in rivals for word in phrase(rival)}
    if len(last) < 3 or last in _NOT_SURNAMES or last in taken or len(words) != len(names):
        return
    if len(words) > 2:
        yield (words[0], last)
        yield (*(word[0] for word in words[:-1]), last)
    yield (words[0][0], last)
    if last not in asked or asked.issuperset(words):
        yield (last,)
