"""Paraphrases of questions: five to optimize an attack on, five others to evaluate it on.

Source: the knowledge-based setting of PoisonArena (ten paraphrases of each question, split in
half), which releases them in the same layout.

Deviations: the split is checked. A paraphrase that stands on both sides, by id or as the same
question spelled differently, is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragassay.data.entries import Entry, kind_of
from ragassay.data.jsonl import read_jsonl
from ragassay.errors import DataError
from ragassay.matching import normalize_question

HALF = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Paraphrases:
    """Ten paraphrases of a question, in their order, with their ids."""

    query_id: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def optimize(self) -> tuple[str, ...]:
        """The first five, which an attack may see."""
        return self.texts[:HALF]

    @property
    def evaluate(self) -> tuple[str, ...]:
        """The other five, which it never sees."""
        return self.texts[HALF:]


def paraphrase_ids(query_id: str) -> tuple[str, ...]:
    """Ids of ten paraphrases: the question's, ``#p`` and the number from 1.

    Examples
    --------
    >>> paraphrase_ids("q")[5]
    'q#p6'
    """
    return tuple(f"{query_id}#p{number}" for number in range(1, 2 * HALF + 1))


def read_paraphrases(path: str | Path) -> dict[str, Paraphrases]:
    """Read JSON lines ``{"query_id": ..., "paraphrases": [ten]}``.

    A paraphrase is a string or an object ``{"id": ..., "question": ...}``.

    Returns
    -------
    dict
        By query id, in file order.

    Raises
    ------
    DataError
        A line is wrong, a question has two, or some paraphrase stands on both sides.
    """
    path = Path(path)
    found: dict[str, Paraphrases] = {}
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        each = _from(Entry(row, path, line))
        if each.query_id in found:
            raise DataError(
                f"query {each.query_id!r} already has paraphrases on line {lines[each.query_id]}",
                path=path,
                line=line,
            )
        found[each.query_id], lines[each.query_id] = each, line
    check_split(found.values(), path=path, lines=lines)
    return found


def check_split(
    sets: Iterable[Paraphrases],
    *,
    path: Path | None = None,
    lines: Mapping[str, int] | None = None,
) -> None:
    """Refuse paraphrases that an attack would both be optimized and evaluated on.

    Raises
    ------
    DataError
        It names the overlap.
    """
    sets = list(sets)
    optimized = {i: each.query_id for each in sets for i in each.ids[:HALF]}
    for each in sets:
        line = (lines or {}).get(each.query_id)
        shared = [i for i in each.ids[HALF:] if i in optimized]
        if shared:
            raise DataError(
                f"paraphrase {shared[0]!r} is one to evaluate query {each.query_id!r} on and "
                f"also one to optimize query {optimized[shared[0]]!r} on ({len(shared)} such "
                "ids); the two must be disjoint",
                path=path,
                line=line,
            )
        seen = {normalize_question(text): text for text in each.optimize}
        for text in each.evaluate:
            if normalize_question(text) in seen:
                raise DataError(
                    f"query {each.query_id!r}: the paraphrase {text!r:.80} is one to evaluate on "
                    "and also one to optimize on; the two must be disjoint",
                    path=path,
                    line=line,
                )


def _from(entry: Entry) -> Paraphrases:
    query_id = entry.id("query_id")
    items = entry.array("paraphrases")
    if len(items) != 2 * HALF:
        raise entry.error(
            f"query {query_id!r} has {len(items)} paraphrases, expected {2 * HALF}: {HALF} to "
            f"optimize on, {HALF} to evaluate on"
        )
    ids, texts = [], []
    for number, (own, item) in enumerate(
        zip(paraphrase_ids(query_id), items, strict=True), start=1
    ):
        text, given = _one(entry, number, item)
        if not normalize_question(text):
            raise entry.error(f"paraphrase {number} of query {query_id!r} has no word")
        ids.append(given or own)
        texts.append(text)
    _check_ids(entry, ids)
    return Paraphrases(query_id=query_id, ids=tuple(ids), texts=tuple(texts))


def _one(entry: Entry, number: int, item: object) -> tuple[str, str]:
    if isinstance(item, str):
        return item, ""
    if not isinstance(item, dict):
        raise entry.error(
            f"paraphrase {number} must be a string or an object, found {kind_of(item)}"
        )
    part = entry.part("paraphrases", number, item)
    return part.text("question"), part.id("id")


def _check_ids(entry: Entry, ids: Sequence[str]) -> None:
    both = [i for i in ids[HALF:] if i in ids[:HALF]]
    twice = both or [i for i in ids if ids.count(i) > 1]
    if twice:
        where = "one to optimize on and one to evaluate on" if both else "two paraphrases"
        raise entry.error(f"the id {twice[0]!r} names {where}; ids must differ")
