"""Proposes what an attacker could want, for data sets that come without targets.

A target is a wrong answer of the kind of the right one. ``substitution`` changes what the right
answer holds (yes and no, numbers, names) and otherwise takes the answer of another question that
looks alike; ``pool`` always does the latter; ``model`` asks the helper model. Proposals are to be
looked through before they are used.

Source: PoisonArena, appendix B (wrong answers of similar difficulty); "In RAG We Trust?", section
III-B (substitutes of the same type).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ragassay import prompts
from ragassay.canon import dumps, rng_for
from ragassay.errors import BackendUnavailable, ConfigError, StoreError
from ragassay.experiments.clients import open_model
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.setup import Experiment, helper_of, load_dataset
from ragassay.matching import find_spans, normalize_text, phrase, tokenize
from ragassay.tampering import EntitySwap, NumberSwap
from ragassay.types import Dataset, Query, Request, Sampling, Target

By = Literal["substitution", "pool", "model"]
METHODS: tuple[By, ...] = ("substitution", "pool", "model")
MAX_WORDS = 20  # longer right answers are passages, not answers
_FLIPPED = {
    "yes": "no", "no": "yes", "true": "false", "false": "true",
    "supported": "refuted", "refuted": "supported", "supports": "refutes", "refutes": "supports",
}  # fmt: skip
_SAMPLING = Sampling(temperature=0.7, max_tokens=48)
_DRAWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A wrong answer for a question. ``by`` says how it was found; empty ``wanted``: none was."""

    query_id: str
    question: str
    references: tuple[str, ...]
    wanted: str
    by: str


def propose(
    experiment: Experiment, by: By = "substitution", *, limit: int = 0, seed: int | None = None
) -> list[Proposal]:
    """Propose a target for each question that has a right answer and no target yet.

    Parameters
    ----------
    experiment : Experiment
        Its data set; with ``by="model"`` also its helper, or first generator.
    by : str
        ``substitution``, ``pool`` or ``model``.
    limit : int
        Draw this many of the questions, in the order of the data set; 0 takes all.
    seed : int, optional
        Instead of the experiment's seed.

    Raises
    ------
    ConfigError
        ``by`` is unknown, or no question is left that a target could be proposed for.
    DataError, BackendError
        The data set is wrong, or the model failed.
    """
    if by not in METHODS:
        raise ConfigError(f"unknown way to propose targets {by!r}; known: {', '.join(METHODS)}")
    dataset = load_dataset(experiment)
    seed = experiment.file.seed if seed is None else seed
    open_ones = [
        query for query in dataset.queries if (target := dataset.targets.get(query.id)) is not None
        and target.references and not target.wanted
    ]  # fmt: skip
    if not open_ones:
        raise ConfigError(
            f"the data set {dataset.name!r} has no question with a right answer and without a "
            "target; nothing to propose"
        )
    if limit and limit < len(open_ones):
        drawn = rng_for(seed, "targets", dataset.fingerprint).permutation(len(open_ones))
        open_ones = [open_ones[i] for i in sorted(drawn[:limit].tolist())]
    if by == "model":
        return _asked(experiment, dataset, open_ones)
    pool = _Pool.of(dataset)
    return [_proposed(query, dataset.targets[query.id], pool, by, seed) for query in open_ones]


def write_targets(path: Path, proposals: Sequence[Proposal]) -> int:
    """Write the proposals that have an answer as a file of targets; the number written.

    Raises
    ------
    StoreError
        The file exists already (what somebody looked through is not overwritten), or cannot be
        written.
    """
    lines = [
        dumps({
            "query_id": each.query_id, "query": each.question, "references": each.references,
            "wanted": [each.wanted], "texts": [], "proposed_by": each.by,
        })
        for each in proposals if each.wanted
    ]  # fmt: skip
    text = "".join(line + "\n" for line in lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise StoreError(f"{path} exists already; name another file, or delete it") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(lines)


# ---------------------------------------------------------------------------- from the answers


@dataclass(frozen=True, slots=True)
class _Pool:
    """The right answers of all questions, by how they look."""

    by_look: dict[tuple[Any, ...], list[str]]

    @classmethod
    def of(cls, dataset: Dataset) -> _Pool:
        found: dict[tuple[Any, ...], list[str]] = {}
        for query in dataset.queries:
            target = dataset.targets.get(query.id)
            for answer in target.references[:1] if target else ():
                known = found.setdefault(_look(answer), [])
                if answer not in known:
                    known.append(answer)
        return cls(found)

    def draw(self, target: Target, rng: np.random.Generator) -> str:
        """Another answer that looks alike; "" where there is none."""
        same = self.by_look.get(_look(target.references[0]), [])
        fitting = [answer for answer in same if _is_wrong(answer, target)]
        return fitting[int(rng.integers(len(fitting)))] if fitting else ""


def _look(answer: str) -> tuple[Any, ...]:
    """What makes two answers alike: digits, percent or currency, capitals, length."""
    words = answer.split()
    return (
        any(char.isdigit() for char in answer),
        bool(re.search(r"[%$€£]|percent|million|billion|thousand", answer, re.I)),
        answer[:1].isupper(),
        min(len(words), 4) if len(words) <= 6 else 7,
    )


def _is_wrong(answer: str, target: Target) -> bool:
    """Neither holds a right answer nor stands in one."""
    mine = phrase(answer)
    for reference in target.references:
        right = phrase(reference)
        if not mine or not right or mine == right:
            return False
        if any(find_spans(tokenize(answer), right)) or any(find_spans(tokenize(reference), mine)):
            return False
    return True


def _proposed(query: Query, target: Target, pool: _Pool, by: By, seed: int) -> Proposal:
    rng = rng_for(seed, "target", query.id, query.text)
    answer = target.references[0].strip()
    ways: list[tuple[str, Callable[[], str]]] = [("pool", lambda: pool.draw(target, rng))]
    if by == "substitution":
        ways = [
            ("opposite", lambda: _opposite(answer)),
            ("number", lambda: NumberSwap(keep_asked=False).apply(answer, "", rng).text),
            ("name", lambda: _renamed(answer, rng)),
            *ways,
        ]
    if len(answer.split()) <= MAX_WORDS:
        for name, way in ways:
            wanted = way()
            if wanted and _is_wrong(wanted, target):
                return _proposal(query, target, wanted, name)
    return _proposal(query, target, "", "")


def _proposal(query: Query, target: Target, wanted: str, by: str) -> Proposal:
    return Proposal(
        query_id=query.id, question=query.text, references=target.references, wanted=wanted, by=by
    )


def _opposite(answer: str) -> str:
    flipped = _FLIPPED.get(normalize_text(answer), "")
    return flipped.capitalize() if answer[:1].isupper() else flipped


def _renamed(answer: str, rng: np.random.Generator) -> str:
    """Swap the names of an answer, which is read in a sentence, as the language model needs."""
    if not answer[:1].isupper():
        return ""
    before, after = "It is about ", "."
    try:
        text = EntitySwap(keep_asked=False).apply(f"{before}{answer}{after}", "", rng).text
    except BackendUnavailable:
        return ""
    inside = text.startswith(before) and text.endswith(after)
    return text[len(before) : -len(after)] if inside else ""


# ------------------------------------------------------------------------------- from a model


def _asked(experiment: Experiment, dataset: Dataset, queries: Sequence[Query]) -> list[Proposal]:
    template = prompts.load("target")
    named = helper_of(experiment)
    with open_model(named.instance, experiment.file.run, Monitor()) as client:
        requests = [
            Request(
                messages=template.render(
                    {"question": query.text, "answer": dataset.targets[query.id].references[0]}
                ),
                sampling=_SAMPLING,
                sample_index=draw,
            )
            for query in queries
            for draw in range(_DRAWS)
        ]
        answers = [answer.text for answer in client.ask(requests)]
    found = []
    for number, query in enumerate(queries):
        target = dataset.targets[query.id]
        drawn = answers[number * _DRAWS : (number + 1) * _DRAWS]
        lines = [text.strip().partition("\n")[0].strip().strip('"').rstrip(".") for text in drawn]
        fitting = [
            line for line in lines if 0 < len(line.split()) <= MAX_WORDS and _is_wrong(line, target)
        ]
        wanted = fitting[0] if fitting else ""
        found.append(_proposal(query, target, wanted, "model" if wanted else ""))
    return found
