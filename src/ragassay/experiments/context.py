"""The contexts of a run: clean and poisoned retrieval, and the clean ones to calibrate on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragassay.canon import digest, rng_for
from ragassay.config import MAX_K
from ragassay.errors import ConfigError, PluginError
from ragassay.experiments.poison import group_poison
from ragassay.experiments.questions import spare_queries
from ragassay.experiments.setup import Arm, Setup, is_fitted
from ragassay.matching import normalize_question, normalize_text
from ragassay.plugins import Defense, Index, Tools
from ragassay.types import Hit, PoisonSet, Query

MIN_HELD_OUT = 100
MIN_CALIBRATION = 10

ANY_GROUP = ""  # of held-out questions, which share no injection with anything

Context = tuple[Hit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Retrieved contexts and the ledger of origin.

    ``clean`` maps a query id to its clean top-k, ``poisoned`` an (attack, budget, query id)
    to the top-k of corpus and injected passages. ``poison`` holds, for (attack, budget,
    query id), the digest of everything injected into the query's group. ``owner`` maps a
    poison passage id to the query that it was written for, and ``injected`` an
    (attack, injection group) to the normalized texts that were written for each query of it.
    ``wider`` holds the same for defenses that ask for so many times as many passages.
    """

    clean: Mapping[str, Context]
    poisoned: Mapping[tuple[str, int, str], Context]
    poison: Mapping[tuple[str, int, str], str]
    owner: Mapping[str, str]
    injected: Mapping[tuple[str, str], Mapping[str, frozenset[str]]]
    wider: Mapping[int, Contexts] = field(default_factory=dict)

    def of(self, expand: int) -> Contexts:
        """The contexts that a defense sees which asks for ``expand`` times as many passages."""
        return self if expand == 1 else self.wider[expand]


def expansion(defense: Any) -> int:
    """How many times ``retriever.k`` passages a defense asks for.

    Raises
    ------
    PluginError
        It is no whole number from 1.
    """
    factor = getattr(defense, "expand", 1)
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        name = type(defense).__name__
        raise PluginError(f"defense {name}: expand must be a whole number from 1, got {factor!r}")
    return factor


def expanded(arm: Arm, factor: int) -> Arm:
    """The arm with so many times as many passages, at most as many as a context may have."""
    return replace(arm, k=max(arm.k, min(arm.k * factor, MAX_K)))


def cells_of(setup: Setup, sets: Mapping[tuple[str, str], PoisonSet]) -> list[tuple[str, int]]:
    """List the (attack, budget) pairs that the poison at hand can fill.

    A budget that no query's poison reaches (a single-passage attack at budget 5) would repeat
    a smaller one under another name, so it is left out.
    """
    cells = []
    for attack in setup.attacks:
        most = max(len(sets[attack.title, query.id].passages) for query in setup.evaluated)
        budgets = [b for b in sorted(setup.experiment.file.budgets) if b <= most]
        if not budgets:
            raise ConfigError(
                f"attack {attack.title!r} delivers at most {most} passages for a query, and no "
                f"budget is that small: {list(setup.experiment.file.budgets)}"
            )
        cells += [(attack.title, budget) for budget in budgets]
    return cells


def retrieve(
    setup: Setup,
    arm: Arm,
    index: Index,
    sets: Mapping[tuple[str, str], PoisonSet],
    cells: Sequence[tuple[str, int]] | None = None,
) -> Contexts:
    """Retrieve the clean and all poisoned contexts of the questions, in one arm.

    Defenses that ask for more passages find theirs in ``wider``. ``cells`` are the (attack,
    budget) pairs; by default those that the poison can fill.
    """
    cells = cells_of(setup, sets) if cells is None else cells
    factors = sorted({expansion(each.instance) for each in setup.defenses} - {1})
    return replace(
        _retrieve(setup, arm, index, sets, cells),
        wider={f: _retrieve(setup, expanded(arm, f), index, sets, cells) for f in factors},
    )


def _retrieve(
    setup: Setup,
    arm: Arm,
    index: Index,
    sets: Mapping[tuple[str, str], PoisonSet],
    cells: Sequence[tuple[str, int]],
) -> Contexts:
    queries = {query.id: query for query in setup.evaluated}
    encode_ahead = getattr(index, "encode_poison", None)
    if encode_ahead is not None:  # one call with all of it: larger batches
        encode_ahead([passage for poison in sets.values() for passage in poison.passages])
    asked = [*setup.evaluated, *setup.held_out]
    clean = dict(zip([q.id for q in asked], index.search(asked, arm.k), strict=True))
    poisoned: dict[tuple[str, int, str], Context] = {}
    injected: dict[tuple[str, int, str], str] = {}
    owner = {passage.id: s.query_id for s in sets.values() for passage in s.passages}
    for attack, budget in cells:
        for members in group_poison(sets, setup, attack, budget).values():
            passages = [passage for _, poison in members for passage in poison.passages]
            content = digest(sorted([p.id, p.title, p.text] for p in passages))
            ids = [query_id for query_id, _ in members]
            found = index.poisoned([queries[i] for i in ids], passages, arm.k)
            for query_id, hits in zip(ids, found, strict=True):
                poisoned[attack, budget, query_id] = hits
                injected[attack, budget, query_id] = content
    texts: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
    for (attack, query_id), poison in sets.items():
        group = texts.setdefault((attack, queries[query_id].group), {})
        group[query_id] = frozenset(normalize_text(p.text) for p in poison.passages)
    return Contexts(
        clean=clean,
        poisoned=poisoned,
        poison=injected,
        owner=owner,
        injected=texts,
    )


def blind(
    hits: Sequence[Hit], *, salt: str, titles: bool
) -> tuple[tuple[Hit, ...], dict[str, str]]:
    """Replace ids by opaque digests, and hide titles that the victim does not see either.

    Returns
    -------
    tuple
        The hits as defenses see them, and the way back from opaque to real ids.
    """
    back: dict[str, str] = {}
    masked = []
    for hit in hits:
        opaque = digest([salt, hit.passage.id])[:16]
        back[opaque] = hit.passage.id
        title = hit.passage.title if titles else ""
        masked.append(replace(hit, passage=replace(hit.passage, id=opaque, title=title)))
    return tuple(masked), back


# ------------------------------------------------------------------------------- calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A defense ready for one injection group; ``identity`` covers its calibration.

    ``expand``: it is given so many times ``retriever.k`` passages.
    """

    instance: Defense
    identity: str
    expand: int = 1


def make_ready(
    setup: Setup,
    arm: Arm,
    index: Index,
    clean: Mapping[str, Context],
    tools: Callable[[Query], Tools],
) -> dict[tuple[str, str], Ready]:
    """Calibrate what must be calibrated: (defense title, group) to a defense.

    Calibration queries are disjoint from the tested ones by id and by normalized question.
    """
    groups = sorted({query.group for query in setup.evaluated})
    if setup.held_out:
        groups.append(ANY_GROUP)
    ready: dict[tuple[str, str], Ready] = {}
    fitted = [defense for defense in setup.defenses if is_fitted(defense.instance)]
    for defense in setup.defenses:
        if defense not in fitted:
            for group in groups:
                ready[defense.title, group] = Ready(
                    instance=defense.instance,
                    identity=defense.identity,
                    expand=expansion(defense.instance),
                )
    for factor in sorted({expansion(defense.instance) for defense in fitted}):
        wide = expanded(arm, factor)
        known = clean
        if factor > 1:
            found = index.search(setup.evaluated, wide.k)
            known = {q.id: hits for q, hits in zip(setup.evaluated, found, strict=True)}
        source, folds = _folds(setup, wide, index, known, groups)
        for group, contexts in folds.items():
            seen = digest([source, [query.id for query, _ in contexts]])[:16]
            for defense in fitted:
                instance: Any = defense.instance
                if expansion(instance) == factor:
                    ready[defense.title, group] = Ready(
                        instance=instance.fit(contexts, tools(contexts[0][0])),
                        identity=f"{defense.identity}:{seen}",
                        expand=factor,
                    )
    return ready


def _folds(
    setup: Setup, arm: Arm, index: Index, clean: Mapping[str, Context], groups: Sequence[str]
) -> tuple[str, dict[str, list[tuple[Query, Context]]]]:
    settings = setup.experiment.file.calibration
    titles = setup.experiment.file.prompt.titles
    queries = _listed(setup) if settings.ids else _spare(setup)
    if queries is not None:
        hits = index.search(queries, arm.k)
        contexts = [
            (query, blind(found, salt=query.id, titles=titles)[0])
            for query, found in zip(queries, hits, strict=True)
        ]
        return "held_out", dict.fromkeys(groups, contexts)
    folds = {}
    for group in groups:
        own = {normalize_question(q.text) for q in setup.evaluated if q.group == group}
        others = [
            (query, blind(clean[query.id], salt=query.id, titles=titles)[0])
            for query in setup.evaluated
            if query.group != group and normalize_question(query.text) not in own
        ]
        if len(others) < MIN_CALIBRATION:
            raise ConfigError(
                "the detectors cannot be calibrated: group "
                f"{group!r} leaves {len(others)} clean questions in other groups, at least "
                f"{MIN_CALIBRATION} are needed (more groups, or questions without a target)"
            )
        folds[group] = others
    return "crossfit", folds


def _spare(setup: Setup) -> list[Query] | None:
    """Draw held-out calibration questions; ``None`` where the folds must come from the tested."""
    settings = setup.experiment.file.calibration
    spare = spare_queries(setup.dataset, [*setup.evaluated, *setup.held_out])
    source = settings.source
    if source == "auto":
        source = "held_out" if len(spare) >= MIN_HELD_OUT else "crossfit"
    if source == "crossfit":
        return None
    if len(spare) < MIN_CALIBRATION:
        raise ConfigError(
            f"calibration.source = 'held_out' needs at least {MIN_CALIBRATION} questions "
            f"without a target, the data set has {len(spare)}; use 'crossfit'"
        )
    rng = rng_for(setup.experiment.file.seed, "calibration", setup.dataset.fingerprint)
    chosen = sorted(rng.permutation(len(spare))[: settings.queries].tolist())
    return [spare[i] for i in chosen]


def _listed(setup: Setup) -> list[Query]:
    """The calibration questions that the experiment names; refused where one is also tested."""
    ids = setup.experiment.file.calibration.ids
    by_id = {query.id: query for query in setup.dataset.queries}
    unknown = [each for each in ids if each not in by_id]
    if unknown:
        raise ConfigError(f"calibration.ids: the data set has no question {unknown[0]!r}")
    chosen = [by_id[each] for each in dict.fromkeys(ids)]
    tested = [*setup.evaluated, *setup.held_out]
    spare = {query.id for query in spare_queries(setup.dataset, tested)}
    shared = [query.id for query in chosen if query.id not in spare]
    if shared:
        raise ConfigError(
            f"calibration.ids: {len(shared)} of {len(chosen)} questions are also tested, by id "
            f"or as the same question spelled differently, so no detector is calibrated on them: "
            f"{', '.join(shared[:20])}{' ...' if len(shared) > 20 else ''}"
        )
    if len(chosen) < MIN_CALIBRATION:
        raise ConfigError(
            f"calibration.ids names {len(chosen)} questions, at least {MIN_CALIBRATION} are needed"
        )
    return chosen
