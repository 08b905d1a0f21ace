"""From what a reader found to a :class:`~ragassay.types.Dataset`: groups, selection, digest.

All readers end here, so that groups are numbered, targets chosen and fingerprints taken in
one way, whatever the files looked like.

Injection groups matter because published attacks inject the poison of several questions
together (PoisonedRAG: ten). Questions with a target are numbered in the order of the file of
targets, in blocks of ``group_size``; the others get group names of their own.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragassay.canon import digest, digest_of_stream
from ragassay.data.corpus_file import CorpusFile, rows_of
from ragassay.errors import ConfigError, DataError
from ragassay.types import Dataset, Json, Passage, Query, Target

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedTarget:
    """What an attacker wants for one question, with the texts released for it.

    Attributes
    ----------
    query_id, question : str
        The question; ``question`` may be empty where the file does not repeat it.
    references, wanted : tuple of str
        Correct answers; the attacker's answer and its aliases (empty: untargeted).
    texts : tuple of str
        Released texts, in released order.
    method, variant : str
        The attack's name, and what else tells rows apart (the model that wrote them).
    complete : bool
        True for whole poison passages that hold their retrieval part; False for texts that
        only argue for the answer (PoisonedRAG's part I).
    scores : tuple of float
        Released retrieval scores, one per text, or none.
    position : int
        Which of several targets of the question this is, from 1.
    line : int
        Where it stood: the line (of a JSON file, the one where the entry starts), from 1.
    """

    query_id: str
    question: str = ""
    references: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    method: str = ""
    variant: str = ""
    complete: bool = False
    scores: tuple[float, ...] = ()
    position: int = 1
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question as read: accepted answers, metadata, and its group where the file has one."""

    id: str
    text: str
    references: tuple[str, ...] = ()
    group: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that a reader found. ``gold`` is None where relevance was not annotated.

    ``targets_path`` is named in messages about ``released``.
    """

    name: str
    corpus: Sequence[Passage]
    questions: tuple[Question, ...]
    gold: Mapping[str, tuple[str, ...]] | None = None
    released: tuple[ReleasedTarget, ...] = ()
    targets_path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which targeted questions are used; 0 and ``()`` mean all.

    ``limit`` counts over the whole set, ``limit_per_group`` within each group, ``target``
    says which target of a question is taken where a file offers several.
    """

    groups: tuple[str, ...] = ()
    limit: int = 0
    limit_per_group: int = 0
    target: int = 1
    group_size: int = 10

    def __post_init__(self) -> None:
        for option in ("limit", "limit_per_group"):
            if getattr(self, option) < 0:
                raise ConfigError(f"{option} = {getattr(self, option)}: need 0 (all) or more")
        for option in ("target", "group_size"):
            if getattr(self, option) < 1:
                raise ConfigError(f"{option} = {getattr(self, option)}: need 1 or more")
        if len(set(self.groups)) != len(self.groups) or "" in self.groups:
            raise ConfigError(f"groups = {list(self.groups)}: need different, non-empty names")


def assemble(parts: Parts, selection: Selection) -> Dataset:
    """Join corpus, questions, targets and relevance into a data set.

    All questions are kept: first the selected ones, in the order of the file of targets,
    then targeted ones that were not selected, then the others in file order. The latter two
    have no wanted answer; they serve to calibrate detectors.

    Raises
    ------
    ConfigError
        The selection names a group or a target that does not exist.
    DataError
        A target belongs to no question, or repeats it with another wording, or one question
        has the same target twice.
    """
    chosen = _choose(parts, selection.target)
    by_id = {question.id: question for question in parts.questions}
    _match(chosen.values(), by_id, parts.targets_path)
    ordered = [by_id[query_id] for query_id in chosen]
    others = [question for question in parts.questions if question.id not in chosen]
    groups = _groups(ordered, "g", selection.group_size) | _groups(
        others, "h", selection.group_size
    )
    picked = _pick([question.id for question in ordered], groups, selection)
    ordered.sort(key=lambda question: question.id not in picked)
    queries, targets, drafts, metadata = [], {}, {}, {}
    for question in (*ordered, *others):
        known = chosen.get(question.id)
        released = known if question.id in picked else None
        queries.append(Query(id=question.id, text=question.text, group=groups[question.id]))
        targets[question.id] = Target(
            query_id=question.id,
            references=_distinct((*question.references, *(known.references if known else ()))),
            wanted=_distinct(released.wanted) if released else (),
            gold_ids=(parts.gold or {}).get(question.id, ()),
        )
        facts = dict(question.metadata)
        if released:
            drafts[question.id] = released.texts
            facts["released_target"] = _facts(released)
        if facts:
            metadata[question.id] = facts
    return Dataset(
        name=parts.name,
        fingerprint=_fingerprint(parts.corpus, queries, targets, drafts, selection),
        corpus=parts.corpus,
        queries=tuple(queries),
        targets=targets,
        drafts=drafts,
        metadata=metadata,
        has_qrels=parts.gold is not None,
    )


def listed(items: Sequence[str], shown: int = _SHOWN) -> str:
    """Write the first few of several items, and how many there are more."""
    rest = len(items) - shown
    return ", ".join(items[:shown]) + (f" and {rest} more" if rest > 0 else "")


# --------------------------------------------------------------------------------- internals


def _choose(parts: Parts, target: int) -> dict[str, ReleasedTarget]:
    offered: dict[str, dict[int, ReleasedTarget]] = {}
    for released in parts.released:
        of_query = offered.setdefault(released.query_id, {})
        twin = of_query.get(released.position)
        if twin is not None:
            names = [" ".join((row.method, row.variant)).strip() for row in (twin, released)]
            raise DataError(
                f"target {released.position} of query {released.query_id!r} was already given "
                f"on line {twin.line}{f' ({names[0]}, {names[1]})' if any(names) else ''}; "
                "keep one of them",
                path=parts.targets_path,
                line=released.line,
            )
        of_query[released.position] = released
    for query_id, of_query in offered.items():
        if target not in of_query:
            raise ConfigError(
                f"target = {target}, but {parts.targets_path or parts.name} offers "
                f"{listed([str(n) for n in sorted(of_query)])} for query {query_id!r}"
            )
    return {query_id: of_query[target] for query_id, of_query in offered.items()}


def _match(
    chosen: Iterable[ReleasedTarget], by_id: Mapping[str, Question], path: Path | None
) -> None:
    unknown = [released for released in chosen if released.query_id not in by_id]
    if unknown:
        named = [f"{released.query_id!r} (line {released.line})" for released in unknown]
        raise DataError(
            f"{len(unknown)} targets are for unknown query ids: {listed(named)}", path=path
        )
    for released in chosen:
        ours = " ".join(by_id[released.query_id].text.split())
        theirs = " ".join(released.question.split())
        if theirs and theirs != ours:
            raise DataError(
                f"the target of query {released.query_id!r} asks {theirs!r:.120}, "
                f"the query {ours!r:.120}",
                path=path,
                line=released.line,
            )


def _groups(questions: Sequence[Question], letter: str, size: int) -> dict[str, str]:
    """Name the group of each question: its own, else by blocks (``g01``, ``g02``, ...)."""
    named = [question for question in questions if question.group]
    if letter == "g" and 0 < len(named) < len(questions):
        without = next(question.id for question in questions if not question.group)
        raise DataError(
            f"metadata.group is given for {len(named)} of {len(questions)} targeted questions, "
            f"not for {without!r}; give it for all or for none"
        )
    return {
        question.id: question.group or f"{letter}{position // size + 1:02d}"
        for position, question in enumerate(questions)
    }


def _pick(query_ids: Sequence[str], groups: Mapping[str, str], selection: Selection) -> set[str]:
    known = list(dict.fromkeys(groups[query_id] for query_id in query_ids))
    for group in selection.groups:
        if group not in known:
            close = difflib.get_close_matches(group, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ConfigError(
                f"no targeted question is in group {group!r}{hint} Groups: "
                f"{listed(known, 12) or 'none, for want of targets'}"
            )
    picked: set[str] = set()
    count: Counter[str] = Counter()
    for query_id in query_ids:
        group = groups[query_id]
        full = selection.limit and len(picked) >= selection.limit
        group_full = selection.limit_per_group and count[group] >= selection.limit_per_group
        if full or group_full or (selection.groups and group not in selection.groups):
            continue
        picked.add(query_id)
        count[group] += 1
    return picked


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _facts(released: ReleasedTarget) -> dict[str, Json]:
    return {
        "method": released.method,
        "variant": released.variant,
        "complete": released.complete,
        "position": released.position,
        "scores": list(released.scores),
    }


def _fingerprint(
    corpus: Sequence[Passage],
    queries: Iterable[Query],
    targets: Mapping[str, Target],
    drafts: Mapping[str, tuple[str, ...]],
    selection: Selection,
) -> str:
    others: dict[str, object] = {
        "queries": [[query.id, query.text, query.group] for query in queries],
        "targets": [
            [target.query_id, target.references, target.wanted, target.gold_ids]
            for target in targets.values()
        ],
        "drafts": [[query_id, texts] for query_id, texts in drafts.items()],
        "selection": [
            selection.groups,
            selection.limit,
            selection.limit_per_group,
            selection.target,
        ],
    }

    def whole() -> str:
        return digest_of_stream({"corpus": rows_of(corpus), **others})

    if isinstance(corpus, CorpusFile):  # its texts need not be read again for the same questions
        return corpus.remembered(f"data set {digest(others)}", whole)
    return whole()


def corpus_fingerprint(corpus: Sequence[Passage]) -> str:
    """Digest a corpus alone: ids, titles and texts, in their order."""

    def whole() -> str:
        return digest_of_stream(rows_of(corpus))

    if isinstance(corpus, CorpusFile):
        return corpus.remembered("corpus", whole)
    return whole()
