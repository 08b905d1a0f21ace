"""Candidates of the split-knowledge probe, built from two-hop questions. No model is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragassay.canon import rng_for
from ragassay.experiments.probe_text import (
    asks_for,
    kind_of,
    mentions,
    names_in,
    substitute,
    title_forms,
)
from ragassay.matching import has_content, normalize_text, phrase
from ragassay.types import Dataset, Passage, Query, Target

NOT_TWO = "no or not exactly two supporting passages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A question with its first hop A and a changed second hop B.

    ``text`` is B, ``second`` the passage that it was made from, ``bridge`` the name by which A
    leads to it. ``drawn`` says that the target was another question's answer of the same
    ``kind``, and not given with the data set.
    """

    query: Query
    references: tuple[str, ...]
    wanted: tuple[str, ...]
    first: Passage
    second: Passage
    bridge: str
    text: str
    kind: str
    drawn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The candidates of a data set, and why its other questions give none, by query id."""

    candidates: tuple[Candidate, ...]
    unusable: Mapping[str, str]

    @property
    def questions(self) -> int:
        """How many questions the data set has."""
        return len(self.candidates) + len(self.unusable)

    @property
    def two_hop(self) -> int:
        """How many of them have exactly two supporting passages."""
        return self.questions - sum(reason == NOT_TWO for reason in self.unusable.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Why two-hop questions give no candidate, the most frequent reason first."""
        counts = Counter(reason for reason in self.unusable.values() if reason != NOT_TWO)
        return dict(counts.most_common())


def find_candidates(
    dataset: Dataset,
    *,
    targets: Mapping[str, Sequence[str]] | None = None,
    seed: int = 12,
) -> list[Candidate]:
    """List the candidates of a data set; see :func:`screen`, which also says why not."""
    return list(screen(dataset, targets=targets, seed=seed).candidates)


def screen(
    dataset: Dataset,
    *,
    targets: Mapping[str, Sequence[str]] | None = None,
    seed: int = 12,
) -> Screening:
    """Build a candidate from every two-hop question that gives one. Pure; no model is asked.

    A question is used if

    1. exactly two passages are annotated as its support;
    2. a reference, which is not yes or no, occurs as whole tokens in exactly one of them, the
       second hop; the other is A;
    3. the second hop's title (without a parenthesis, or what follows a comma) occurs in A's
       title or text, so that A leads there, and not in the question, which would then have one
       hop;
    4. there is a target: the data set's wanted answer, or else another question's reference of
       the same kind. It occurs neither in the question nor in its support, and holds no
       reference;
    5. B is the text of the second hop (headed by the name by which A leads to it, where it does
       not hold that itself) with the target in place of every reference. It holds no reference
       any more and still that name, and it names neither A's title nor anything else that is
       named in both the question and A (a name that A and the second hop share, as "Alien" of
       the film and of its music, is the one by which A leads there).

    Parameters
    ----------
    dataset : Dataset
        A data set with annotated support.
    targets : mapping of str to sequence of str, optional
        Wrong answers (with aliases) by query id, instead of those of the data set.
    seed : int
        Seeds the draw of targets, together with the query id.

    Returns
    -------
    Screening
        Candidates in the order of the questions.
    """
    passages = {passage.id: passage for passage in dataset.corpus}
    given = targets
    if given is None:
        given = {query_id: target.wanted for query_id, target in dataset.targets.items()}
    pool = _pool(dataset)
    candidates: list[Candidate] = []
    unusable: dict[str, str] = {}
    for query in dataset.queries:
        target = dataset.targets.get(query.id, Target(query_id=query.id))
        try:
            hops = _hops(query, target, passages)
            wanted = tuple(form for form in given.get(query.id, ()) if has_content(form))
            candidates.append(_changed(hops, wanted, pool, seed))
        except _Unusable as reason:
            unusable[query.id] = str(reason)
    return Screening(candidates=tuple(candidates), unusable=unusable)


# ---------------------------------------------------------------------------- the two hops


class _Drawable(NamedTuple):
    """An answer that can become a target elsewhere, and what was asked for; see asks_for."""

    asked: tuple[str, str]
    answer: str

    def likeness(self, asked: tuple[str, str]) -> int:
        """2 where both words of the question agree, 1 where the first does, else 0."""
        return 2 if self.asked == asked else int(self.asked[0] == asked[0])


class _Unusable(Exception):
    """Why a question gives no candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hops:
    """A two-hop question, its passages, and the names by which A leads to the second."""

    query: Query
    references: tuple[str, ...]
    first: Passage
    second: Passage
    bridges: tuple[str, ...]

    @property
    def support(self) -> str:
        return "\n".join((_whole(self.first), _whole(self.second)))

    @property
    def named(self) -> str:
        """The text of the second hop, headed by its name where it does not hold it itself."""
        if mentions(self.second.text, self.bridges):
            return self.second.text
        return f"{self.bridges[-1]}: {self.second.text}"

    @property
    def others(self) -> tuple[str, ...]:
        """Names that B must not give away: A's, and those that the question shares with A."""
        shared = [
            name for name in names_in(self.query.text) if mentions(_whole(self.first), [name])
        ]
        bridges = {normalize_text(bridge) for bridge in self.bridges}
        return tuple(
            name
            for name in (*title_forms(self.first.title), *shared)
            if normalize_text(name) not in bridges
        )


def _hops(query: Query, target: Target, passages: Mapping[str, Passage]) -> _Hops:
    support = [passages[key] for key in target.gold_ids if key in passages]
    if len(support) != 2 or len(target.gold_ids) != 2:
        raise _Unusable(NOT_TWO)
    references = tuple(form for form in target.references if has_content(form))
    if not references:
        raise _Unusable("no reference answer")
    if any(_is_yes_no(reference) for reference in references):
        raise _Unusable("the answer is yes or no")
    holding = [passage for passage in support if mentions(_whole(passage), references)]
    if len(holding) != 1:
        where = "both supporting passages" if holding else "no supporting passage"
        raise _Unusable(f"the answer stands in {where}")
    second = holding[0]
    first = support[1 - support.index(second)]
    if not mentions(second.text, references):
        raise _Unusable("the answer stands in a title only")
    bridges = tuple(name for name in title_forms(second.title) if mentions(_whole(first), [name]))
    if not bridges:
        raise _Unusable("the passage without the answer does not name the other one")
    if mentions(query.text, bridges):
        raise _Unusable("the question itself names the passage with the answer")
    return _Hops(query=query, references=references, first=first, second=second, bridges=bridges)


def _changed(
    hops: _Hops, wanted: tuple[str, ...], pool: Mapping[str, Sequence[_Drawable]], seed: int
) -> Candidate:
    kind = kind_of(hops.references[0])
    if wanted:
        if not _fits(hops, wanted):
            raise _Unusable("the wanted answer stands in the question or its support")
        chosen = wanted
    else:
        drawn = (answer for answer in _drawn(hops, pool.get(kind, ()), seed))
        chosen = next(((answer,) for answer in drawn if _fits(hops, [answer])), ())
        if not chosen:
            raise _Unusable("no other answer of the same kind to draw")
    text = substitute(hops.named, hops.references, chosen[0])
    if mentions(text, hops.references) or not mentions(text, chosen[:1]):
        raise _Unusable("the answer cannot be replaced cleanly")
    bridge = next((name for name in hops.bridges if mentions(text, [name])), "")
    if not bridge:
        raise _Unusable("the answer is part of the name that leads to it")
    if mentions(text, hops.others):
        raise _Unusable("the changed passage names what the question asks about")
    return Candidate(
        query=hops.query,
        references=hops.references,
        wanted=chosen,
        first=hops.first,
        second=hops.second,
        bridge=bridge,
        text=text,
        kind=kind,
        drawn=not wanted,
    )


def _fits(hops: _Hops, wanted: Sequence[str]) -> bool:
    """Tell whether a target is new to the question and its support, and gives nothing away."""
    return not (
        mentions(hops.query.text, wanted)
        or mentions(hops.support, wanted)
        or any(mentions(form, hops.references) for form in wanted)
        or any(mentions(reference, wanted) for reference in hops.references)
        or any(mentions(form, hops.others) for form in wanted)
    )


def _pool(dataset: Dataset) -> dict[str, list[_Drawable]]:
    """Collect what can be drawn, by kind: what was asked for, and the answer; sorted."""
    pool: dict[str, set[_Drawable]] = {}
    for query in dataset.queries:
        target = dataset.targets.get(query.id)
        for reference in target.references[:1] if target else ():
            if phrase(reference) and has_content(reference) and not _is_yes_no(reference):
                drawable = _Drawable(asks_for(query.text), reference)
                pool.setdefault(kind_of(reference), set()).add(drawable)
    return {kind: sorted(answers) for kind, answers in pool.items()}


def _drawn(hops: _Hops, pool: Sequence[_Drawable], seed: int) -> Iterator[str]:
    """Yield the pool in a random order, answers to questions of the same form first."""
    order = rng_for(seed, "split knowledge", hops.query.id).permutation(len(pool)).tolist()
    asked = asks_for(hops.query.text)
    for likeness in (2, 1, 0):
        yield from (pool[i].answer for i in order if pool[i].likeness(asked) == likeness)


def _is_yes_no(answer: str) -> bool:
    return normalize_text(answer) in {"yes", "no"}


def _whole(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"
