"""How an entry of each released layout becomes targets; what tells the layouts apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ragassay.data.assembly import ReleasedTarget, listed
from ragassay.data.entries import Entry


def _converted(entry: Entry) -> Iterator[ReleasedTarget]:
    yield ReleasedTarget(
        query_id=entry.id("query_id"),
        question=entry.optional_text("query"),
        references=entry.answers("correct_answers"),
        wanted=entry.answers("incorrect_answers"),
        texts=entry.strings("poison_passages"),
        line=entry.line,
    )


def _native(entry: Entry) -> Iterator[ReleasedTarget]:
    yield ReleasedTarget(
        query_id=entry.id("query_id"),
        question=entry.optional_text("query"),
        references=entry.answers("references"),
        wanted=entry.answers("wanted"),
        texts=entry.strings("texts"),
        method=entry.optional_text("method"),
        complete=entry.flag("complete"),
        position=entry.position("target"),
        line=entry.line,
    )


def _attack(entry: Entry) -> Iterator[ReleasedTarget]:
    texts, scores = _scored(entry, "docs")
    given = entry.array("scores") if entry.row.get("scores") is not None else []
    if any(score is not None for score in given):
        scores = tuple(entry.number(score) for score in given)
        if len(scores) != len(texts):
            raise entry.error(f"{len(texts)} docs but {len(scores)} scores")
    yield ReleasedTarget(
        query_id=entry.id("query_id"),
        question=entry.optional_text("query"),
        references=entry.answers("correct_answers"),
        wanted=entry.answers("target_answer"),
        texts=texts,
        method=entry.optional_text("method"),
        variant=entry.optional_text("llm"),
        complete=True,
        scores=scores,
        position=entry.position("answer_position"),
        line=entry.line,
    )


def _arena(entry: Entry) -> Iterator[ReleasedTarget]:
    wrong, documents = entry.answers("incorrect_answers"), entry.array("adv_docs")
    if len(wrong) != len(documents):
        raise entry.error(f"{len(wrong)} incorrect_answers but {len(documents)} lists of adv_docs")
    for position, (answer, texts) in enumerate(zip(wrong, documents, strict=True), start=1):
        yield ReleasedTarget(
            query_id=entry.id("query_id"),
            question=entry.optional_text("query"),
            references=entry.answers("correct_answers"),
            wanted=(answer,),
            texts=entry.all_strings("adv_docs", texts),
            position=position,
            line=entry.line,
        )


def _poisonedrag(entry: Entry) -> Iterator[ReleasedTarget]:
    yield ReleasedTarget(
        query_id=_id_or_key(entry),
        question=entry.text("question"),
        references=entry.answers("correct answer"),
        wanted=entry.answers("incorrect answer"),
        texts=entry.strings("adv_texts"),
        line=entry.line,
    )


def _poisonarena_attack(entry: Entry) -> Iterator[ReleasedTarget]:
    texts, scores = _scored(entry, "adv_texts")
    yield ReleasedTarget(
        query_id=_id_or_key(entry),
        question=entry.text("question"),
        references=entry.answers("answer"),
        wanted=entry.answers("incorrect_answer"),
        texts=texts,
        complete=True,
        scores=scores,
        line=entry.line,
    )


def _poisonarena_arena(entry: Entry) -> Iterator[ReleasedTarget]:
    for position, item in enumerate(entry.array("all_adv_docs"), start=1):
        part = entry.part("all_adv_docs", position, item)
        yield ReleasedTarget(
            query_id=_id_or_key(entry),
            question=entry.text("question"),
            references=entry.answers("correct answer"),
            wanted=part.answers("incorrect_answer"),
            texts=part.strings("adv_texts"),
            position=position,
            line=entry.line,
        )


def _robustrag(entry: Entry) -> Iterator[ReleasedTarget]:
    texts = "incorrect_context" if "incorrect_context" in entry.row else "incorrect context"
    yield ReleasedTarget(
        query_id=_id_or_key(entry),
        question=entry.text("question"),
        references=(*entry.answers("correct answer"), *entry.answers("expanded answer")),
        wanted=entry.answers("incorrect answer"),
        texts=entry.strings(texts) if texts in entry.row else (),
        line=entry.line,
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: the keys that tell it from all others, and how an entry is read."""

    name: str
    required: frozenset[str]
    read: Callable[[Entry], Iterator[ReleasedTarget]]

    @property
    def keys(self) -> str:
        """The telling keys, for messages."""
        return "{" + ", ".join(sorted(self.required)) + ", ...}"


ROBUSTRAG = Layout("RobustRAG", frozenset({"question", "correct answer", "context"}), _robustrag)
LAYOUTS = (
    Layout("targets", frozenset({"query_id", "incorrect_answers", "poison_passages"}), _converted),
    Layout("native", frozenset({"query_id", "wanted", "texts"}), _native),
    Layout("attack", frozenset({"query_id", "target_answer", "docs"}), _attack),
    Layout("arena", frozenset({"query_id", "incorrect_answers", "adv_docs"}), _arena),
    Layout("PoisonedRAG", frozenset({"question", "incorrect answer", "adv_texts"}), _poisonedrag),
    Layout(
        "PoisonArena attack",
        frozenset({"question", "incorrect_answer", "adv_texts"}),
        _poisonarena_attack,
    ),
    Layout("PoisonArena arena", frozenset({"question", "all_adv_docs"}), _poisonarena_arena),
    ROBUSTRAG,
)


def layout_of(entry: Entry) -> Layout:
    """Recognize the layout of an entry; an unknown one is a DataError that lists all."""
    for layout in LAYOUTS:
        if layout.required <= entry.row.keys():
            return layout
    known = "; ".join(f"{layout.name} {layout.keys}" for layout in LAYOUTS)
    found = listed([repr(key)[:60] for key in sorted(entry.row)], 12) or "none"
    raise entry.error(f"unknown layout of targets, keys found: {found}. Known: {known}")


def _id_or_key(entry: Entry) -> str:
    return entry.id("id") if entry.row.get("id") is not None else entry.key


def _scored(entry: Entry, name: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Read texts, or objects of ``context`` and ``score``."""
    items = entry.array(name)
    if not items or not isinstance(items[0], dict):
        return entry.strings(name), ()
    texts, scores = [], []
    for number, item in enumerate(items, start=1):
        part = entry.part(name, number, item)
        texts.append(part.text("context"))
        scores.append(part.number(part.row.get("score")))
    return tuple(texts), tuple(scores)
