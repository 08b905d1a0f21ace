"""The contexts of the dose protocol: clean, tampered with by dose, and about something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ragassay.canon import digest, rng_for
from ragassay.config import MAX_K
from ragassay.errors import ConfigError
from ragassay.experiments.context import Context
from ragassay.experiments.setup import Arm, Named, Setup
from ragassay.experiments.view import Asks
from ragassay.matching import find_spans, has_content, phrase, tokenize
from ragassay.plugins import Index
from ragassay.tampering.dose import Dosed, tamper
from ragassay.tampering.edits import Scene
from ragassay.types import Dataset, Hit, Message, Passage, Query, Request, Sampling

NEAR = 100  # passages nearest to a question that are not irrelevant to it
_REWRITING = Sampling(temperature=1.0, max_tokens=400)
_WORKERS = 32  # questions whose passages are rewritten at a time
_ATTEMPTS = 10_000  # more than a rule asks for one text

Cell = tuple[str, str, int, int]  # query, rule, draw, requested dose


@dataclass(frozen=True, slots=True, kw_only=True)
class DoseContexts:
    """The contexts of one encoding arm.

    ``clean`` and ``irrelevant`` are by query id, ``dosed`` says for each cell what became of
    the passages of the clean context.
    """

    clean: Mapping[str, Context]
    irrelevant: Mapping[str, Context]
    dosed: Mapping[Cell, Dosed]


def doses_of(setup: Setup, arm: Arm) -> tuple[int, ...]:
    """The doses of an arm, ascending: as set, else 0 to k.

    Raises
    ------
    ConfigError
        A dose is larger than the context.
    """
    part = setup.experiment.file.dose
    doses = sorted(part.doses) if part else []
    if doses and doses[-1] > arm.k:
        raise ConfigError(
            f"dose.doses holds {doses[-1]}, and retriever {arm.title!r} hands over k = {arm.k} "
            "passages: a dose is a count from 0 to k"
        )
    return tuple(doses or range(arm.k + 1))


def clean_contexts(setup: Setup, arm: Arm, index: Index) -> dict[str, Context]:
    """The untampered contexts by query id: retrieved, or gold passages first."""
    part = setup.experiment.file.dose
    queries = setup.evaluated
    if part is None or part.contexts == "retrieved":
        return dict(zip([q.id for q in queries], index.search(queries, arm.k), strict=True))
    deep = min(MAX_K, len(setup.dataset.corpus))
    by_id = {passage.id: passage for passage in setup.dataset.corpus}
    found = index.search(queries, max(deep, arm.k))
    return {
        query.id: gold_first(query, hits, by_id, setup.dataset, arm.k)
        for query, hits in zip(queries, found, strict=True)
    }


def gold_first(
    query: Query, hits: Context, by_id: Mapping[str, Passage], dataset: Dataset, k: int
) -> Context:
    """Put the supporting passages of a question first, and fill up with retrieved ones.

    A supporting passage that was not retrieved at all has the lowest score that was.
    """
    gold = dataset.targets[query.id].gold_ids
    scores = {hit.passage.id: hit.score for hit in hits}
    lowest = min(scores.values(), default=0.0)
    others = [hit.passage for hit in hits if hit.passage.id not in set(gold)]
    chosen = [*(by_id[each] for each in gold), *others][:k]
    return tuple(
        Hit(passage=passage, rank=rank, score=scores.get(passage.id, lowest))
        for rank, passage in enumerate(chosen, start=1)
    )


def irrelevant_contexts(
    setup: Setup, arm: Arm, index: Index, clean: Mapping[str, Context]
) -> dict[str, Context]:
    """Draw for each question passages of the corpus that do not bear on it.

    Left out are its own context and support, the passages nearest to it (at most a quarter of
    the corpus), and every passage that holds an accepted answer.

    Raises
    ------
    ConfigError
        The corpus has too few others.
    """
    dataset = setup.dataset
    near = index.search(setup.evaluated, max(1, min(NEAR, len(dataset.corpus) // 4)))
    tokens = [tokenize(passage.text) for passage in dataset.corpus]
    found: dict[str, Context] = {}
    for query, hits in zip(setup.evaluated, near, strict=True):
        target = dataset.targets[query.id]
        own = {hit.passage.id for hit in (*hits, *clean[query.id])} | set(target.gold_ids)
        answers = [phrase(form) for form in target.references if has_content(form)]
        chosen: list[Passage] = []
        order = rng_for(setup.experiment.file.seed, "irrelevant", arm.title, query.id)
        for at in order.permutation(len(dataset.corpus)):
            passage = dataset.corpus[int(at)]
            if passage.id in own or not has_content(passage.text):
                continue
            if any(True for form in answers for _ in find_spans(tokens[int(at)], form)):
                continue
            chosen.append(passage)
            if len(chosen) == len(clean[query.id]):
                break
        if len(chosen) < len(clean[query.id]):
            raise ConfigError(
                f"the corpus has {len(chosen)} passages that do not bear on question {query.id!r}, "
                f"{len(clean[query.id])} are needed; take 'irrelevant' out of dose.controls"
            )
        found[query.id] = tuple(
            Hit(passage=passage, rank=rank, score=0.0)
            for rank, passage in enumerate(chosen, start=1)
        )
    return found


# ---------------------------------------------------------------------------------- tampering


def dose_passages(
    setup: Setup, arm: Arm, clean: Mapping[str, Context], helper: Asks | None
) -> dict[Cell, Dosed]:
    """Tamper with the clean contexts, for every rule, draw and dose above 0.

    One draw chooses the same passages for all rules and victims, and its doses are nested.

    Raises
    ------
    ConfigError
        A rule needs an attacker's answer that a question does not have, or a model.
    BackendError
        The model that rewrites failed.
    """
    part = setup.experiment.file.dose
    if part is None:
        return {}
    doses = [dose for dose in doses_of(setup, arm) if dose]
    texts = {query_id: _texts(context) for query_id, context in clean.items()}
    found: dict[Cell, Dosed] = {}
    for named in setup.rules:
        rule = named.instance
        prepare = getattr(rule, "prepare", None)
        if prepare is not None:
            prepare([text for each in texts.values() for text in each])
        asks = bool(getattr(rule, "asks", False))
        if asks:
            _with_targets(setup, named)

        def of_query(query: Query, named: Named = named) -> list[tuple[Cell, Dosed]]:
            place = setup.experiment.file.seed, arm.title, query.id
            return [
                (
                    (query.id, named.title, draw, dose),
                    tamper(
                        named.instance, texts[query.id], min(dose, len(texts[query.id])),
                        question=query.text, rng=rng_for(*place, draw), mode=part.choose,
                        scene=scene,
                    ),
                )
                for draw in range(part.draws)
                for scene in (_scene(setup, query, helper, draw),)
                for dose in doses
            ]  # fmt: skip

        if asks:
            with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
                for cells in pool.map(of_query, setup.evaluated):
                    found.update(cells)
        else:
            for query in setup.evaluated:
                found.update(of_query(query))
    return found


def tampered_context(context: Context, dosed: Dosed) -> Context:
    """The context with the texts after tampering; an edited passage has an id of its own."""
    return tuple(
        hit
        if hit.passage.text == text
        else replace(
            hit, passage=replace(hit.passage, id=_renamed(hit.passage.id, text), text=text)
        )
        for hit, text in zip(context, dosed.texts, strict=True)
    )


def _renamed(passage_id: str, text: str) -> str:
    return f"{passage_id}~{digest(text)[:12]}"


def _texts(context: Context) -> tuple[str, ...]:
    return tuple(hit.passage.text for hit in context)


def _scene(setup: Setup, query: Query, helper: Asks | None, draw: int) -> Scene:
    """What a rule may know; of the helper each draw asks for texts of its own."""
    wanted = setup.dataset.targets[query.id].wanted
    if helper is None:
        return Scene(target=wanted[0] if wanted else "")

    def ask(messages: Sequence[Message], attempt: int) -> str:
        request = Request(
            messages=tuple(messages), sampling=_REWRITING,
            sample_index=draw * _ATTEMPTS + attempt,
        )  # fmt: skip
        return helper.ask([request])[0].text

    return Scene(target=wanted[0] if wanted else "", ask=ask)


def _with_targets(setup: Setup, rule: Named) -> None:
    lacking = [query.id for query in setup.evaluated if not setup.dataset.targets[query.id].wanted]
    if lacking:
        raise ConfigError(
            f"rule {rule.title!r} writes for the attacker's answer, and {len(lacking)} of "
            f"{len(setup.evaluated)} questions have none, such as {lacking[0]!r}: name a file of "
            "targets ([dataset] targets = ...) or leave the rule out"
        )
