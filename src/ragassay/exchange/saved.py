"""Saved answers as public reproductions release them: three layouts, told apart by their keys.

Source: ``repro`` and ``repro-paper`` are the record tables and the logs of a public
reproduction of PoisonedRAG (Zou et al., 2025); ``finqa`` are predictions of FinQA systems
without any attack.

Deviations: a condition such as ``authority_5.00%`` becomes the attack ``authority 5%`` with
the number of injected texts as its budget, since two rates may inject the same number. Ids of
poison are made unique by the question's id. Where no retrieval score was saved, it is 0.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from ragassay.canon import digest
from ragassay.data.entries import Entry
from ragassay.data.jsonl import read_jsonl
from ragassay.errors import ConfigError, DataError
from ragassay.exchange.rows import Place, Problems, Row
from ragassay.types import ContextEntry, Json, Passage

PAPER_ATTACK, PAPER_BUDGET = "poisonedrag", 5
_BEFORE, _AFTER = "Contexts: ", " \n\nQuery: "


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of a layout: those it needs, and those it may have beside them."""

    name: str
    required: frozenset[str]
    optional: frozenset[str]


LAYOUTS = (
    Layout(
        "repro",
        frozenset({"model", "dataset", "condition", "variant", "n_poison", "query_id", "query",
                   "correct_answers", "target_answer", "response", "doc_ids", "labels"}),
        frozenset({"requested_poison_rate", "scores", "poison_in_topk", "attack_success",
                   "correct_answer_present"}),
    ),
    Layout(
        "repro-paper",
        frozenset({"model", "dataset", "iteration", "query_id", "query", "correct_answers",
                   "target_answer", "injected_in_topk", "response"}),
        frozenset({"prompt"}),
    ),
    Layout(
        "finqa",
        frozenset({"run", "query_id", "gold", "prediction", "retrieved"}),
        frozenset({"stamp"}),
    ),
)  # fmt: skip


@dataclass(kw_only=True)
class SavedAnswers:
    """A file of saved answers. ``name`` is the layout; empty: told from the first row's keys.

    ``questions`` names a file ``{_id, text}`` or ``{query_id, query}`` for layouts that hold
    no questions. ``budget`` is how many texts the runs of ``repro-paper`` injected a question.
    """

    path: Path
    name: str = ""
    questions: Path | None = None
    budget: int = PAPER_BUDGET
    _texts: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    complete = False

    def __post_init__(self) -> None:
        if self.name and self.name not in {layout.name for layout in LAYOUTS}:
            known = ", ".join(layout.name for layout in LAYOUTS)
            raise ConfigError(f"unknown layout {self.name!r}; known: {known}")

    @property
    def layout(self) -> str:
        """Name of the layout."""
        return self._found().name

    @property
    def files(self) -> tuple[Path, ...]:
        """The answers, and the questions where they stand in a file of their own."""
        return (self.path,) if self.questions is None else (self.path, self.questions)

    @property
    def details(self) -> dict[str, Json]:
        """How the file was understood."""
        return {"budget": self.budget} if self.layout == "repro-paper" else {}

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the answers in file order."""
        reported: set[str] = set()
        try:
            layout = self._found()
            self._read_questions()
            build: Callable[[Entry], Row] = {
                "repro": self._repro, "repro-paper": self._paper, "finqa": self._finqa,
            }[layout.name]  # fmt: skip
            for line, row in read_jsonl(self.path):
                entry = Entry(row, self.path, line)
                unknown = row.keys() - layout.required - layout.optional - reported
                for name in sorted(unknown):
                    reported.add(name)
                    problems.add(
                        f"the layout {layout.name} has no field {name!r:.60}; take a file of one "
                        "layout, or import it as a table (--map)",
                        path=self.path,
                        line=line,
                    )
                try:
                    yield build(entry)
                except DataError as error:
                    problems.take(error)
        except DataError as error:
            problems.take(error)

    def notes(self) -> list[str]:
        """Say what the layout lacks."""
        layout = self.layout
        if layout == "finqa":
            found = ["The layout has no target: only correctness is labeled."]
            if not self._texts:
                found.append("The questions' texts are not in the file (--questions FILE).")
            return found
        if layout == "repro-paper":
            return [
                "No retrieval scores were saved; each iteration of ten questions is one "
                f"injection group; the budget is taken to be {self.budget} (--budget)."
            ]
        return []

    def file_of(self, place: Place) -> str:
        """All conditions are in one file."""
        return ""

    def _found(self) -> Layout:
        for layout in LAYOUTS:
            if layout.name == self.name:
                return layout
        for line, row in read_jsonl(self.path):
            found = layout_of(row)
            if found is None:
                raise DataError(_unknown(row), path=self.path, line=line)
            return found
        raise AssertionError("read_jsonl gives a row or raises")

    def _read_questions(self) -> None:
        if self.questions is None or self._texts:
            return
        for line, row in read_jsonl(self.questions):
            entry = Entry(row, self.questions, line)
            name, text = ("_id", "text") if "_id" in row else ("query_id", "query")
            self._texts[entry.id(name)] = entry.text(text)

    def _repro(self, entry: Entry) -> Row:
        query_id, budget = entry.id("query_id"), _count(entry, "n_poison")
        dataset = entry.text("dataset")
        given = ("condition", "requested_poison_rate", "poison_in_topk", "attack_success",
                 "correct_answer_present")  # fmt: skip
        return Row(
            path=entry.path,
            line=entry.line,
            query_id=query_id,
            question=entry.text("query"),
            answer=entry.text("response"),
            references=entry.answers("correct_answers"),
            wanted=entry.answers("target_answer"),
            dataset=dataset,
            victim=entry.text("model"),
            attack=attack_name(entry) if budget else "",
            budget=budget,
            context=_context(entry, query_id),
            trace={"released": {name: entry.row[name] for name in given if name in entry.row}},
        )

    def _paper(self, entry: Entry) -> Row:
        dataset, iteration = entry.text("dataset"), entry.text("iteration")
        context, passages = _prompt_context(entry, dataset)
        return Row(
            path=entry.path,
            line=entry.line,
            query_id=entry.id("query_id"),
            question=entry.text("query"),
            answer=entry.text("response"),
            references=entry.answers("correct_answers"),
            wanted=entry.answers("target_answer"),
            group=iteration,
            dataset=dataset,
            victim=entry.text("model"),
            attack=PAPER_ATTACK,
            budget=self.budget,
            context=context,
            passages=passages,
        )

    def _finqa(self, entry: Entry) -> Row:
        query_id = entry.id("query_id")
        if self._texts and query_id not in self._texts:
            raise entry.error(f"{self.questions} has no question {query_id!r:.60}")
        return Row(
            path=entry.path,
            line=entry.line,
            query_id=query_id,
            question=self._texts.get(query_id, ""),
            answer=entry.text("prediction"),
            references=entry.answers("gold"),
            victim=entry.text("run"),
            context=tuple(
                ContextEntry(id=doc, score=0.0, origin="corpus", gold=False, kept=True)
                for doc in entry.strings("retrieved")
            ),
        )


def layout_of(row: Mapping[str, Any]) -> Layout | None:
    """Recognize the layout of a row by its keys."""
    return next((layout for layout in LAYOUTS if layout.required <= row.keys()), None)


def attack_name(entry: Entry) -> str:
    """Name the attack of a condition: the variant and the rate at which it injects.

    Examples
    --------
    >>> row = {"variant": "authority", "condition": "x", "requested_poison_rate": 1e-06}
    >>> attack_name(Entry(row, Path("a"), 1))
    'authority 0.0001%'
    """
    variant, rate = entry.text("variant"), entry.row.get("requested_poison_rate")
    if rate is None:
        return entry.text("condition")
    percent = format((Decimal(repr(entry.number(rate))) * 100).normalize(), "f")
    return f"{variant} {percent}%"


def _unknown(row: Mapping[str, Any]) -> str:
    def distance(layout: Layout) -> int:
        return len(layout.required - row.keys())

    near = min(LAYOUTS, key=distance)
    missing = sorted(near.required - row.keys())
    close = difflib.get_close_matches(missing[0], list(row), n=1)
    hint = f" (is it {close[0]!r}?)" if close else ""
    return (
        f"unknown layout; nearest is {near.name}, which needs {missing[0]!r}{hint}. For another "
        "layout name the columns (--map FIELD=COLUMN)"
    )


def _count(entry: Entry, name: str) -> int:
    value = entry.row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise entry.error(f"{name!r} must be a whole number from 0, found {value!r:.40}")
    return value


def _context(entry: Entry, query_id: str) -> tuple[ContextEntry, ...]:
    ids, labels = entry.strings("doc_ids"), entry.strings("labels")
    given = entry.row.get("scores")
    scores = [0.0] * len(ids) if given is None else [entry.number(s) for s in given]
    if not len(ids) == len(labels) == len(scores):
        raise entry.error(
            f"{len(ids)} doc_ids, {len(labels)} labels and {len(scores)} scores: must be as many"
        )
    return tuple(
        ContextEntry(
            id=doc if label == "benign" else f"{query_id}/{doc}",
            score=score,
            origin="corpus" if label == "benign" else "own",
            gold=False,
            kept=True,
        )
        for doc, label, score in zip(ids, labels, scores, strict=True)
    )


def _prompt_context(
    entry: Entry, dataset: str
) -> tuple[tuple[ContextEntry, ...], tuple[Passage, ...]]:
    """Take the passages from the prompt: what is not injected is one passage a line.

    Without a prompt, or where the two do not fit, only the injected texts are known.
    """
    injected = entry.strings("injected_in_topk")
    body = entry.optional_text("prompt").partition(_BEFORE)[2].rpartition(_AFTER)[0]
    texts = _split(body, injected) if body else [(text, True) for text in injected]
    passages = tuple(Passage(id=digest([dataset, text])[:20], text=text) for text, _ in texts)
    context = tuple(
        ContextEntry(
            id=passage.id, score=0.0, origin="own" if own else "corpus", gold=False, kept=True
        )
        for passage, (_, own) in zip(passages, texts, strict=True)
    )
    return context, passages


def _split(body: str, injected: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Cut a text of joined passages at the injected ones, which may hold line ends."""
    places = sorted((body.find(text), text) for text in injected)
    if any(at < 0 for at, _ in places):
        return [(text, True) for text in injected]
    parts: list[tuple[str, bool]] = []
    done = 0
    for at, text in places:
        parts += [(line, False) for line in body[done:at].split("\n") if line.strip()]
        parts.append((text, True))
        done = at + len(text)
    parts += [(line, False) for line in body[done:].split("\n") if line.strip()]
    return parts
