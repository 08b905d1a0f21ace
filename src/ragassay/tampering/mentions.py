"""Which names of a passage can be swapped, and of what type each is.

The model proposes; our tables and a few checks of form decide. A name that is in no table is
taken only where its form or surroundings tell its type, since a wrong type gives a passage
that no reader would believe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ragassay.tampering.language import Analysis, Name, Word
from ragassay.tampering.people import FEMALE, MALE, NOT_IN_PERSONS, TITLES
from ragassay.tampering.tables import (
    ALIASES,
    AREAS,
    HEADS,
    TABLES,
    WITHOUT_ARTICLE,
    Area,
)
from ragassay.tampering.words import word_set

AREA_BY_NAME = {area.name: area for area in AREAS}
AREA_BY_CITY = {city: area for area in AREAS for city in area.cities}
AREA_BY_DEMONYM = {area.demonym: area for area in AREAS if area.demonym}
AREA_BY_PEOPLE = {f"{a.demonym}s": a for a in AREAS if a.demonym.endswith(("n", "i", "k"))}
_CLASS_BY_NAME = {name: cls for cls, names in TABLES.items() for name in names}
_ANY_LABEL = frozenset({"prize", "prizes", "river", "sea", "mountain", "range", "lake"})
_PLACES = frozenset({"GPE", "LOC", "ORG", "NORP", "FAC", "LANGUAGE"})
_GIVEN = frozenset(MALE) | frozenset(FEMALE)
_POSSESSIVE = re.compile(r"\s*(?:'s|’s|'|’)\Z")
_ARTICLE = re.compile(r"(?:[Tt]he|[Aa]n?) ")
_PERSON_WORD = re.compile(r"(?:[A-Z]\.|[^\W\d_][^\W\d_]+(?:['’-][^\W\d_]+)*)\Z")
_PARTICLES = frozenset(
    {"de", "da", "del", "der", "di", "du", "la", "le", "van", "von", "bin", "al"}
)
_PERSONAL = frozenset({"person", "surname", "given name"})
_SUFFIXES = frozenset({"Jr.", "Jr", "Sr.", "Sr"})
_REGNAL = re.compile(r"[IVX]{1,4}\Z")
_LOCATIVE = frozenset({"in", "at", "near", "from", "outside", "around"})
_DIRECTIONS = word_set(
    "north south east west northern southern eastern western central latin native african asian "
    "new upper lower old anglo afro pan northeast northwest southeast southwest miss mr captain "
    "inter real"
)
# What is said of a film or an album, which the model may take for a person.
_WORK = (
    r"films?|movies?|albums?|songs?|singles?|series|sitcom|novels?|books?|plays?|musicals?|shows?"
    r"|comedy|drama|thriller|sequel|games?|magazine|newspaper|band|documentary|soundtrack|poem"
)
_WORK_AFTER = re.compile(
    r" ?(?:'s |’s )?(?:(?:world )?premi|release|(?:is|was|were|are)(?: \w+ly)? (?:released|directed"
    r"|published|recorded|filmed|premi|broadcast|aired|produced|based on|set in"
    rf"|(?:an?|the|one of the) (?:[\w-]+ ){{0,6}}?(?:{_WORK})\b(?! (?:director|actor|actress|writer"
    r"|producer|star|maker|player|critic|artist|host|singer|composer|theorist)\b))"
    r"|(?:has|had|stars|features|follows|tells) (?-i:[A-Z]|the story)|premiered|aired)"
    r"| ?, (?:an?|the) (?:[\w-]+ ){0,5}?(?:band|group|duo|trio|album|film|song|company|label"
    r"|series)\b"
    rf"| ?(?:\(|-LRB-) ?(?:\d{{4}} )?(?:\w+ )?(?:{_WORK})\b",
    re.I,
)
_BY = r" by | starring | with | directed | director| actor| featuring | opposite "
_IN_LIST_OF_WORKS = re.compile(
    r"\b(?:films|movies|albums|songs|shows|series|novels|books|plays|titles|hits|singles)\b"
    rf"(?:(?!{_BY})[^.;]){{0,160}}\Z"
)
_OF_COUNTRIES = frozenset({"country", "state", "province", "city", "town"})
_GLOSSED_AS_WORK = re.compile(rf" ?(?:\(|-LRB-) ?(?:\d{{4}} )?(?:\w+ )?(?:{_WORK})\b")
_ROLES = word_set(
    "president minister chancellor king queen emperor governor mayor ambassador secretary senator"
    " ministers presidents kings parliament government army navy capital state republic kingdom"
)
_WORK_BEFORE = re.compile(rf"\b(?:{_WORK}|entitled|titled|called) [\"“`']*\s?\Z")
_ROYAL = word_set("king queen prince princess lord lady pope sir actor actress singer author")
_NICKNAME_AFTER = re.compile(r" ?(?:``|[\"“'‘(]|-LRB-)")
_NOT_TOWNS = word_set(
    "province region islands mountain mountains river sea ocean gulf peninsula coast desert forest"
    " airport station township republic territory kingdom campus canyon creek north south east west"
)
_LANGUAGE_AFTER = re.compile(r"[ -](?:language|speaking|dialect)\b")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name at ``[start, stop)``: its kind and ``key``, which mentions of one thing share."""

    start: int
    stop: int
    text: str
    kind: str
    key: str


def find_mentions(text: str, analysis: Analysis) -> list[Mention]:
    """Return the names that can be swapped, in text order."""
    found: list[Mention] = []
    people: dict[str, str] = {}
    singles: list[tuple[int, int, Name]] = []
    for name in analysis.names:
        start, stop = _trimmed(text, name)
        if start >= stop:
            continue
        mention = _place_or_class(text, analysis, name, start, stop)
        if mention is None and name.label == "PERSON":
            if " " in text[start:stop]:
                mention = _full_name(text, analysis, start, stop)
                if mention:
                    people.setdefault(surname(mention.text), mention.key)
            else:
                singles.append((start, stop, name))
        if mention:
            found.append(mention)
    found += list(_single_names(text, analysis, singles, people))
    found += list(_repeated(text, analysis, found, people))
    return sorted(found, key=lambda mention: mention.start)


def _repeated(
    text: str, analysis: Analysis, found: list[Mention], people: dict[str, str]
) -> Iterator[Mention]:
    """Yield further places of names found, and of family names, that the model missed."""
    forms = {mention.text: (mention.kind, mention.key) for mention in found}
    forms.update({last: ("surname", key) for last, key in people.items()})
    taken = [(mention.start, mention.stop) for mention in found]
    for form in sorted(forms, key=len, reverse=True):
        kind, key = forms[form]
        for match in re.finditer(rf"(?<![\w-]){re.escape(form)}(?![\w-])", text):
            start, stop = match.span()
            if any(a < stop and start < b for a, b in taken):
                continue
            if kind in _PERSONAL:
                free = _stands_free(text, analysis, start, stop)
            else:
                free = not _is_part_of_a_name(text, analysis, start, stop, kind)
            if free:
                taken.append((start, stop))
                yield Mention(start, stop, form, kind, key)


def surname(name: str) -> str:
    """Return the family name of a full name.

    Examples
    --------
    >>> surname("Ludwig van Dorn Jr.")
    'Dorn'
    """
    words = [word for word in name.split() if word not in _SUFFIXES]
    return words[-1]


def _trimmed(text: str, name: Name) -> tuple[int, int]:
    """Return the span of a name without article and possessive."""
    surface = text[name.start : name.stop]
    article = _ARTICLE.match(surface)
    start = name.start + (article.end() if article else 0)
    possessive = _POSSESSIVE.search(surface)
    stop = name.stop - (len(possessive[0]) if possessive else 0)
    return start, stop


# -------------------------------------------------------------------------- places and classes


def _place_or_class(
    text: str, analysis: Analysis, name: Name, start: int, stop: int
) -> Mention | None:
    surface = text[start:stop]
    cls = _CLASS_BY_NAME.get(surface, "")
    if cls and (name.label in _PLACES or cls in _ANY_LABEL):
        return Mention(start, stop, surface, cls, surface)
    if name.label not in _PLACES:
        return None
    area = _area_kind(text, name, start, stop)
    if area:
        kind, key = area
        return None if _is_part_of_a_name(text, analysis, start, stop, kind) else (
            Mention(start, stop, surface, kind, key)
        )  # fmt: skip
    head = surface.split()[-1].lower()
    if " " in surface and head in HEADS and _is_plain_name(surface):
        if head in {"university", "college"} and text[stop : stop + 3] in {" of", ", "}:
            return None
        return Mention(start, stop, surface, HEADS[head], surface)
    if head in NOT_IN_PERSONS | _NOT_TOWNS:
        return None
    if name.label == "GPE" and _is_plain_name(surface) and _is_located(text, start, stop):
        if _is_part_of_a_name(text, analysis, start, stop, "city"):
            return None
        return Mention(start, stop, surface, "town", surface)
    return None


def _area_kind(text: str, name: Name, start: int, stop: int) -> tuple[str, str] | None:
    surface = text[start:stop]
    known = ALIASES.get(surface, surface)
    if known in AREA_BY_NAME:
        area = AREA_BY_NAME[known]
        if area.article and (surface in WITHOUT_ARTICLE or not _after_the(text, start)):
            return f"{area.kind} without article", area.name
        return area.kind, area.name
    if surface in AREA_BY_CITY:
        return "city", surface
    if surface in AREA_BY_DEMONYM:
        area = AREA_BY_DEMONYM[surface]
        speaks = name.label == "LANGUAGE" or _LANGUAGE_AFTER.match(text, stop)
        said_in = text[max(0, start - 4) : start].endswith(" in ")
        if area.language and (speaks or said_in):
            return "language", area.name
        return "demonym", area.name
    if surface in AREA_BY_PEOPLE:
        return "people", AREA_BY_PEOPLE[surface].name
    return None


def _after_the(text: str, start: int) -> bool:
    return text[max(0, start - 4) : start].lower() == "the "


def _is_part_of_a_name(text: str, analysis: Analysis, start: int, stop: int, kind: str) -> bool:
    """Tell whether a place stands within a longer name that the model did not see."""
    if text[max(0, start - 2) : start].strip() == ":":
        return True  # "Series : UK"
    if kind not in {"demonym", "people"} and _WORK_BEFORE.search(text, max(0, start - 24), start):
        return True  # "the film Australia"
    if kind in _OF_COUNTRIES and _GLOSSED_AS_WORK.match(text, stop):
        return True  # "Australia (2008 film)"
    if text[max(0, start - 1) : start] in {"-", "–", "/"} or re.match(r"[-–/][A-Z]", text[stop:]):
        return True
    before, after = _neighbors(analysis.words, start, stop)
    if after and after.start - stop <= 1 and after.tag in {"NNP", "NNPS"} and _is_title(after):
        return True
    if before and start - before.stop <= 1:
        if before.text.lower() in _DIRECTIONS:
            return True
        if _is_title(before) and before.tag in {"NNP", "NNPS"} and kind != "demonym":
            return True
        bare = after is None or after.pos in {"AUX", "VERB", "PUNCT"}
        if _is_title(before) and bare and before is not analysis.words[0]:
            return True  # "Excuse My French is a show"
        if before.text == "of":
            further, _ = _neighbors(analysis.words, before.start, before.stop)
            named = further is not None and further.tag in {"NNP", "NNPS"} and _is_title(further)
            return named and further is not None and further.text.lower() not in _ROLES
    return False


def _is_title(word: Word) -> bool:
    return word.text[:1].isupper() and word.text[1:2].islower()


def _neighbors(words: tuple[Word, ...], start: int, stop: int) -> tuple[Word | None, Word | None]:
    """Return the words before and after a stretch of text."""
    before = after = None
    for word in words:
        if word.stop <= start:
            before = word
        elif word.start >= stop:
            after = word
            break
    return before, after


def _is_plain_name(surface: str) -> bool:
    words = surface.split(" ")
    return all(_PERSON_WORD.match(word) for word in words) and words[0][0].isupper()


def _is_located(text: str, start: int, stop: int) -> bool:
    """Tell whether a name stands where a town would: "in X", "born near X", "X, Ontario"."""
    before = text[max(0, start - 12) : start].split()
    if before and before[-1] in _LOCATIVE:
        return True
    following = re.match(r" ?, (?:the )?([A-Z][\w.]*(?: [A-Z][\w.]*)*)", text[stop:])
    return following is not None and ALIASES.get(following[1], following[1]) in AREA_BY_NAME


def area_of(key: str, kind: str) -> Area | None:
    """Return the area that a place, adjective or people belongs to, where the tables know."""
    if kind == "city":
        return AREA_BY_CITY.get(key)
    return AREA_BY_NAME.get(key)


# ------------------------------------------------------------------------------------ persons


def _full_name(text: str, analysis: Analysis, start: int, stop: int) -> Mention | None:
    surface = text[start:stop]
    words = surface.split(" ")
    if not 2 <= len(words) <= 5 or not all(map(_is_name_word, words)):
        return None
    if words[0] in _PARTICLES or words[-1] in _PARTICLES or surface.isupper():
        return None
    if any(word.lower() in NOT_IN_PERSONS for word in words) or surface in AREA_BY_CITY:
        return None
    inside = [w for w in analysis.words if start <= w.start < stop and w.text[0].isalpha()]
    if not all(w.tag in {"NNP", "NNPS"} or w.text in _PARTICLES for w in inside):
        return None
    if not _stands_free(text, analysis, start, stop) or _is_work(text, start, stop):
        return None
    return Mention(start, stop, surface, "person", surface)


def _is_work(text: str, start: int, stop: int) -> bool:
    """Tell whether what looks like a person is a film, an album or a band, or a gloss."""
    before = text[max(0, start - 200) : start]
    return (
        _WORK_AFTER.match(text, stop) is not None
        or _WORK_BEFORE.search(before) is not None
        or _IN_LIST_OF_WORKS.search(before) is not None
        or before.endswith(("-LRB- ", "(", ": "))
    )


def _is_name_word(word: str) -> bool:
    if word in _PARTICLES or word in _SUFFIXES or _REGNAL.match(word):
        return True
    return _PERSON_WORD.match(word) is not None and word[0].isupper()


def _stands_free(text: str, analysis: Analysis, start: int, stop: int) -> bool:
    """Tell whether a person's name is whole: no article before it, no name runs on."""
    before, after = _neighbors(analysis.words, start, stop)
    if after and after.start - stop <= 1 and after.tag in {"NNP", "NNPS"} and _is_title(after):
        return False
    if text[stop : stop + 1] == "-" or text[max(0, start - 1) : start] == "-":
        return False
    if before is None or start - before.stop > 1:
        return True
    if before.text.lower() in {"a", "an", "the"}:
        return False
    named = before.tag in {"NNP", "NNPS"} and _is_title(before)
    return not named or before.text.lower() in TITLES


def _single_names(
    text: str,
    analysis: Analysis,
    singles: list[tuple[int, int, Name]],
    people: dict[str, str],
) -> Iterator[Mention]:
    """Yield single words that stand for a person named in full, or whom a title tells."""
    given = {key.split()[0]: key for key in people.values()}
    for start, stop, _ in singles:
        surface = text[start:stop]
        if not _is_name_word(surface) or not _stands_free(text, analysis, start, stop):
            continue
        if surface in people:
            yield Mention(start, stop, surface, "surname", people[surface])
        elif surface in given:
            yield Mention(start, stop, surface, "given name", given[surface])
        elif surface in AREA_BY_CITY or surface in AREA_BY_NAME or not surface[0].isupper():
            continue
        else:
            before, _ = _neighbors(analysis.words, start, stop)
            titled = before is not None and before.text.lower() in TITLES - _ROYAL
            if titled and surface not in _GIVEN:
                yield Mention(start, stop, surface, "surname", surface)
            elif surface in _GIVEN and not _NICKNAME_AFTER.match(text, stop):
                yield Mention(start, stop, surface, "given name", surface)
