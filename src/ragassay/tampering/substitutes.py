"""Draws a substitute for every name: one per name, of its type, in agreement with the others.

Cities move with their country, adjectives and languages with it too, and a family name with
the full name. A substitute occurs neither in the passages nor in the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragassay.matching import phrase, tokenize
from ragassay.tampering.mentions import AREA_BY_NAME, Mention, area_of, surname
from ragassay.tampering.people import ALSO_FEMALE, ALSO_MALE, FEMALE, MALE, SURNAMES
from ragassay.tampering.tables import AREAS, TABLES, TOWNS, Area

_PEOPLE = frozenset({"person", "surname", "given name"})
_OF_AREA = frozenset({"demonym", "people", "language", "city"})
_HE = re.compile(r"\b(?:he|him|his|himself|actor|king|prince|father|brother|men|man)\b", re.I)
_SHE = re.compile(
    r"\b(?:she|her|hers|herself|actress|queen|princess|mother|sister|women|woman)\b", re.I
)
_REGNAL = re.compile(r"[IVX]{1,4}\Z")

Substitutes = Mapping[tuple[str, str], str]
"""What is written for a name, by its kind and key."""


@dataclass
class _Pool:
    """Texts and question in which no substitute may occur, and what has been taken."""

    words: str
    rng: np.random.Generator

    def draw(self, names: Iterable[str]) -> str:
        """Draw a name that does not occur yet; "" where all do."""
        free = [name for name in names if self.is_new(name)]
        if not free:
            return ""
        name = free[int(self.rng.integers(len(free)))]
        self.take(name)
        return name

    def is_new(self, name: str) -> bool:
        """Tell whether a name occurs nowhere, not in part either."""
        return f" {' '.join(phrase(name))} " not in self.words

    def take(self, name: str) -> None:
        """Let no other name get the same substitute."""
        self.words += f"{' '.join(phrase(name))} "


def draw_substitutes(
    mentions: Sequence[Mention],
    *,
    question: str,
    texts: Sequence[str],
    keep_asked: bool,
    rng: np.random.Generator,
) -> Substitutes:
    """Draw substitutes for the mentions of some passages, one and the same for all of them.

    Parameters
    ----------
    mentions : sequence of Mention
        From all passages.
    question : str
        Names that occur in it are kept where ``keep_asked``, so that the passage stays on
        its topic.
    texts : sequence of str
        The passages; no substitute occurs in them.
    keep_asked : bool
        See ``question``.
    rng : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    mapping
        A name without an entry is left as it is.
    """
    spaced = [" ".join(token.text for token in tokenize(each)) for each in (*texts, question)]
    pool = _Pool(f" {' | '.join(spaced)} ", rng)
    asked = f" {spaced[-1]} " if keep_asked else " "
    found: dict[tuple[str, str], str] = {}
    found.update(_areas(mentions, asked, pool))
    found.update(_people(mentions, asked, pool, " ".join(texts)))
    for mention in mentions:
        place = (mention.kind, mention.key)
        names = TOWNS if mention.kind == "town" else TABLES.get(mention.kind, [])
        if place not in found and names and not _is_asked(mention.key, asked):
            name = pool.draw(names)
            if name:
                found[place] = name
    return found


def _is_asked(name: str, asked: str) -> bool:
    return f" {' '.join(phrase(name))} " in asked


# -------------------------------------------------------------------------------------- places


def _areas(mentions: Sequence[Mention], asked: str, pool: _Pool) -> dict[tuple[str, str], str]:
    uses: dict[str, set[str]] = {}
    cities: dict[str, list[str]] = {}
    for mention in mentions:
        if mention.kind not in _OF_AREA and mention.kind.split()[0] not in {
            "country", "state", "province",
        }:  # fmt: skip
            continue
        area = area_of(mention.key, mention.kind)
        if area is None:
            continue
        uses.setdefault(area.name, set()).add(mention.kind)
        known = cities.setdefault(area.name, [])
        if mention.kind == "city" and mention.key not in known:
            known.append(mention.key)
    found: dict[tuple[str, str], str] = {}
    for name, kinds in uses.items():
        area = AREA_BY_NAME[name]
        if _is_asked(name, asked) or (area.demonym and _is_asked(area.demonym, asked)):
            found.update(_cities(cities[name], area, asked, pool))
            continue
        other = _other_area(area, kinds, cities[name], pool)
        if other is None:
            continue
        for kind in kinds - {"city"}:
            found[kind, name] = _form(other, kind)
        found.update(_cities(cities[name], other, asked, pool))
        for taken in (other.name, other.demonym):
            pool.take(taken)
    return found


def _cities(
    names: Sequence[str], area: Area, asked: str, pool: _Pool
) -> dict[tuple[str, str], str]:
    drawn = {}
    for city in names:
        other = "" if _is_asked(city, asked) else pool.draw(area.cities)
        if other:
            drawn["city", city] = other
    return drawn


def _form(area: Area, kind: str) -> str:
    if kind in {"demonym", "language"}:
        return area.demonym
    return f"{area.demonym}s" if kind == "people" else area.name


def _other_area(area: Area, kinds: set[str], cities: Sequence[str], pool: _Pool) -> Area | None:
    """Draw an area that can stand wherever the given one does."""
    named = any(kind.split()[0] in {"country", "state", "province"} for kind in kinds)
    bare = any(kind.endswith("without article") for kind in kinds)
    with_article = area.kind in kinds and area.article
    if bare and with_article:
        return None  # no other name goes both with and without "the"

    def fits(other: Area) -> bool:
        if other.kind != area.kind or other is area or len(other.cities) < len(cities):
            return False
        if named and other.article != with_article:
            return False
        if kinds & {"demonym", "people", "language"} and " " in (other.demonym or " "):
            return False
        if "language" in kinds and not other.language:
            return False
        if "people" in kinds and not other.demonym.endswith("n"):
            return False
        fresh = [other.name, *([other.demonym] if other.demonym else [])]
        return all(pool.is_new(name) for name in fresh)

    candidates = [other for other in AREAS if fits(other)]
    return candidates[int(pool.rng.integers(len(candidates)))] if candidates else None


# ------------------------------------------------------------------------------------- persons


def _people(
    mentions: Sequence[Mention], asked: str, pool: _Pool, text: str
) -> dict[tuple[str, str], str]:
    keys = list(dict.fromkeys(m.key for m in mentions if m.kind in _PEOPLE))
    kinds = {m.key: m.kind for m in mentions if m.kind in _PEOPLE and m.text == m.key}
    families: dict[str, str] = {}
    found: dict[tuple[str, str], str] = {}
    for key in keys:
        words = key.split()
        if any(len(word) > 2 and _is_asked(word, asked) for word in words):
            continue
        given = pool.draw(_given_names(words[0], text, alone=len(keys) == 1))
        if _REGNAL.match(words[-1]) or kinds.get(key) == "given name":
            if given:
                found["given name", key] = given
                numeral = f" {words[-1]}" if len(words) > 1 else ""
                found["person", key] = found["surname", key] = given + numeral
            continue
        family = surname(key)
        if family not in families:
            families[family] = pool.draw(SURNAMES)
        if not given or not families[family]:
            continue
        found["person", key] = f"{given} {families[family]}"
        found["surname", key] = families[family]
        found["given name", key] = given
    return found


def _given_names(first: str, text: str, *, alone: bool) -> list[str]:
    """Return given names of the gender that the name or the text speaks of.

    Of a person ``alone`` in the text its pronouns say more than the name (Alice Cooper).
    """
    he, she = len(_HE.findall(text)), len(_SHE.findall(text))
    if alone and he + she and not (he and she):
        return FEMALE if she else MALE
    if first in FEMALE or first in ALSO_FEMALE:
        return FEMALE
    if first in MALE or first in ALSO_MALE:
        return MALE
    if first.endswith("a"):
        return FEMALE  # Johanna: nearly always, where no table knows the name
    return FEMALE if she > he else MALE
