"""GARAG: typos in a genuine passage that keep it retrieved and break the answer.

Source: Cho et al. (2024), "Typos that Broke the RAG's Back: Genetic Attack on RAG Pipeline by
Simulating Documents in the Wild via Low-level Perturbations", EMNLP Findings, in the form of
PoisonArena, which injects the changed passages beside the originals.

Deviations: the answer whose probability is to fall is what the model answers from the passage
alone in the victim's own prompt (``prompt``), whose wording is ours; where it answers nothing it
is the first correct answer. The probability is that of the whole answer. Individuals that change
a passage in the same way are kept once. The best individual is the one of the first front that
is retrieved better than the original and, of these, makes the answer least likely. The published
option for the penalty on retrieval (1.1) was never in effect; the default is the effective 1.2.
``match = "contains"`` also asks that the new answer does not hold a correct one, which exact
match, the published rule, does not see in a long answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ragassay import prompts
from ragassay.attacks.contentpoison import check_answer_prompt, says
from ragassay.attacks.garag_search import Breeding, Evolution, Evolved, objectives
from ragassay.attacks.garag_words import (
    Typos,
    Words,
    answer_words,
    split_words,
    with_misspellings,
)
from ragassay.attacks.search_passages import check_choices, check_counts
from ragassay.attacks.writing import make_passages
from ragassay.errors import ConfigError
from ragassay.matching import has_content
from ragassay.plugins import AttackerView
from ragassay.plugins.access import Ids
from ragassay.stats.utility import exact_match
from ragassay.types import Hit, Json, Knowledge, Message, PoisonSet, Target

Match = Literal["exact", "contains"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Garag:
    """GARAG: genetic typos in the passages that are retrieved; untargeted.

    Each of the ``n`` best passages is copied with typos in a share ``level`` of its words that
    may be changed: not those of an answer, no stop words, none under three letters. A
    population of ``population`` evolves for up to ``generations`` generations of 2 x ``pairs``
    children, which exchange a share ``crossover`` of their typos and redraw a share
    ``mutation``; ``penalties`` multiply an objective above 1. It stops when the best individual
    is retrieved better than the original and no longer answered correctly (``match``).
    ``misspellings`` adds to the list of common ones, each entry a word and its misspellings. For
    a quick look, ``population = 6``, ``generations = 2``, ``pairs = 2``.
    """

    version: ClassVar[str] = "1"
    untargeted: ClassVar[bool] = True
    outcome: ClassVar[str] = "incorrect"
    knowledge: ClassVar[Knowledge] = Knowledge(
        llm="internals", retriever="query", corpus="contents", query="exact", correct_answer=True
    )

    n: int = 5
    level: float = 0.2
    population: int = 25
    generations: int = 25
    pairs: int = 10
    crossover: float = 0.2
    mutation: float = 0.4
    penalties: tuple[float, float] = (1.2, 1.0)
    match: Match = "exact"
    answer_tokens: int = 32
    prompt: str = "answer"
    misspellings: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        check_counts(self, "n", "population", "generations", "pairs", "answer_tokens")
        check_choices(self, match=Match)
        if not 0 < self.level <= 1:
            raise ConfigError(f"need level above 0, at most 1, got {self.level}")
        for name in ("crossover", "mutation"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"need {name} from 0 to 1, got {getattr(self, name)}")
        if len(self.penalties) != 2 or min(self.penalties) < 1:
            raise ConfigError(f"need two penalties from 1 up, got {list(self.penalties)}")
        check_answer_prompt(self.prompt)
        with_misspellings(self.misspellings)

    @property
    def max_passages(self) -> int:
        """Largest budget that this attack can fill."""
        return self.n

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Put typos into up to ``n`` retrieved passages.

        A passage without a word that may be changed, or over the word limit, is left out. The
        set promotes no answer: ``wanted`` is empty.

        Raises
        ------
        ConfigError
            There is no correct answer.
        """
        if not any(has_content(answer) for answer in view.correct_answers):
            raise ConfigError(f"garag needs a correct answer for query {target.query_id!r}")
        hits = view.retrieved(min(self.n, view.budget))
        crafted = [
            (hit, *made)
            for hit, random in zip(hits, rng.spawn(len(hits)), strict=True)
            if (made := self._damaged(hit, view, random)) is not None
        ]
        passages = make_passages("garag", target.query_id, [text for _, text, _ in crafted])
        return PoisonSet(
            attack="garag",
            query_id=target.query_id,
            passages=tuple(
                replace(passage, title=hit.passage.title)
                for passage, (hit, _, _) in zip(passages, crafted, strict=True)
            ),
            knowledge=self.knowledge,
            details=tuple(note for _, _, note in crafted),
        )

    # ----------------------------------------------------------------------------- internals

    def _damaged(
        self, hit: Hit, view: AttackerView, rng: np.random.Generator
    ) -> tuple[str, dict[str, Json]] | None:
        text = hit.passage.text
        if view.max_words is not None and len(text.split()) > view.max_words:
            return None
        if not has_content(text):
            return None
        reader = Reader(self, view, text)
        typos = Typos(with_misspellings(self.misspellings), reader.protected)
        words = split_words(text, reader.protected, typos)
        if not words.open:
            return None
        evolution = Evolution(
            words=words,
            typos=typos,
            measure=reader.measure,
            done=reader.broken,
            breeding=Breeding(
                level=self.level,
                population=self.population,
                generations=self.generations,
                pairs=self.pairs,
                crossover=self.crossover,
                mutation=self.mutation,
                penalties=self.penalties,
            ),
            rng=rng,
        )
        found = evolution.run()
        return found.text, _note(hit, words, reader, found)


class Reader:
    """What retriever and model make of one passage and of its copies with typos.

    Attributes
    ----------
    said : str
        What the model answers from the passage.
    answer : str
        The answer whose probability is to fall.
    """

    def __init__(self, options: Garag, view: AttackerView, text: str) -> None:
        self._options = options
        self._view = view
        self._model = view.language_model
        self._template = prompts.load(options.prompt)
        self._correct = view.correct_answers
        self._said: dict[str, str] = {}
        self.said = self.ask(text)
        self.answer = next(each for each in (self.said, *self._correct) if has_content(each))
        self.protected = answer_words([self.said, *self._correct])
        self._ids: Ids = self._model.tokenize(self.answer)
        self.similarity, self.log_probability = (float(v[0]) for v in self._levels([text]))

    def ask(self, text: str) -> str:
        """The model's answer from a passage; asked once for each text."""
        if text not in self._said:
            limit = self._options.answer_tokens
            self._said[text] = self._model.generate(self._prompt(text), limit)
        return self._said[text]

    def correct(self, answer: str) -> bool:
        """Whether an answer is correct by the rule of the attack."""
        if exact_match(answer, self._correct):
            return True
        return self._options.match == "contains" and any(
            says(answer, right) for right in self._correct
        )

    def broken(self, text: str) -> bool:
        """Whether the answer from a passage is not correct."""
        return not self.correct(self.ask(text))

    def measure(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Objectives of copies, shape (n, 2)."""
        similar, logs = self._levels(texts)
        start = np.full(len(texts), self.similarity), np.full(len(texts), self.log_probability)
        return np.stack(objectives(start[0], similar, start[1], logs), axis=1)

    def _levels(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        similar = self._view.similarity(texts)
        pairs = [(self._model.chat_ids(self._prompt(text)), self._ids) for text in texts]
        logs = [row.sum(dtype=np.float64) for row in self._model.logprobs(pairs)]
        return similar, np.array(logs)

    def _prompt(self, text: str) -> tuple[Message, ...]:
        return self._template.render({"contexts": text, "question": self._view.question})


def _note(hit: Hit, words: Words, reader: Reader, found: Evolved) -> dict[str, Json]:
    said = reader.ask(found.text)
    before = reader.correct(reader.said)
    return {
        "carrier_id": hit.passage.id,
        "carrier_rank": hit.rank,
        "words": words.count,
        "words_open": len(words.open),
        "words_edited": len(found.edits),
        "edits": [[number, words.word(number), new] for number, new in found.edits],
        "f_ret": found.f_ret,
        "f_read": found.f_read,
        "answer_before": reader.said,
        "answer_after": said,
        "correct_before": before,
        "correct_after": reader.correct(said),
        "iterations": found.generations,
        "evaluations": found.evaluations,
        "stop": found.stop,
        # What was never answered correctly cannot be broken.
        "success": found.stop == "broken" if before else None,
        "untargeted": True,
        "trace": [list(entry) for entry in found.trace],
    }
