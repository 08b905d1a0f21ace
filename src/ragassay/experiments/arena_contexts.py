"""Contexts of an arena: merged by score, and known by what stands in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ragassay.arena.pool import Assignment, QueryPool
from ragassay.arena.retrieval import Context as Merged
from ragassay.arena.retrieval import merge
from ragassay.canon import digest
from ragassay.experiments.arena_pools import Pools
from ragassay.experiments.arena_rounds import Drawn, Played, Scene
from ragassay.experiments.context import Context
from ragassay.types import Hit, Passage


@dataclass(slots=True, kw_only=True)
class Contexts:
    """Makes the contexts of one scene, and keeps each distinct one.

    ``known`` maps (question, digest) to the hits; the digest of a clean context is empty.
    Where ``pools`` hold variants of documents, ``chosen`` are those of the documents as they are:
    they say which document of an attacker is the best, and what the clean context is.
    """

    scene: Scene
    pools: Pools
    k: int
    chosen: Pools | None = None
    known: dict[tuple[str, str], Context] = field(default_factory=dict)

    def play(self, drawn: Drawn, pools: Pools | None = None) -> list[Played]:
        """Retrieve for every assignment. ``pools`` replace the own ones for one draw."""
        source = pools or self.pools
        pool = source.by_query[drawn.query_id]
        return [self._played(pool, source, assignment) for assignment in drawn.assignments]

    def clean(self, query_id: str) -> Context:
        """The clean context of a question."""
        key = (query_id, "")
        if key not in self.known:
            source = self.chosen or self.pools  # variants share the clean context of the run
            pool = source.by_query[query_id]
            merged = merge(pool.clean, {}, self.k)
            self.known[key] = self._hits(pool, source, merged, range(len(merged.texts)))
        return self.known[key]

    def _played(self, pool: QueryPool, source: Pools, assignment: Assignment) -> Played:
        injected = pool.injected(assignment)
        if self.scene.guaranteed:
            by = pool if self.chosen is None else self.chosen.by_query[pool.query_id]
            merged, sizes = _best_of_each(pool, assignment, by), dict.fromkeys(injected, 1)
        else:
            merged = merge(pool.clean, injected, self.k)
            sizes = {name: len(each.texts) for name, each in injected.items()}
        rows = range(len(merged.texts))
        without = {
            name: self._keep(pool, source, merged, [i for i in rows if merged.owners[i] != (name,)])
            for name, position in assignment.items()
            if position is None and merged.hits[name]
        }
        return Played(
            context=self._keep(pool, source, merged, rows),
            hits=merged.hits,
            injected=sizes,
            without=without,
        )

    def _keep(self, pool: QueryPool, source: Pools, merged: Merged, rows: Sequence[int]) -> str:
        hits = self._hits(pool, source, merged, rows)
        name = digest([hit.passage.id for hit in hits])[:32]
        if hits == self.clean(pool.query_id):
            name = ""
        self.known.setdefault((pool.query_id, name), hits)
        return name

    def _hits(self, pool: QueryPool, source: Pools, merged: Merged, rows: Sequence[int]) -> Context:
        clean = dict(zip(pool.clean.texts, pool.clean.scores, strict=True))
        seen: Counter[str] = Counter()
        hits: list[Hit] = []
        for row in rows:
            text, owners = merged.texts[row], merged.owners[row]
            if owners:
                passage = source.poison[pool.query_id, text]
                score = self._score(pool, text, owners[0])
            else:
                passage, score = source.clean[text], clean[text]
            hits.append(Hit(passage=_copy(passage, seen), rank=len(hits) + 1, score=score))
        return tuple(hits)

    def _score(self, pool: QueryPool, text: str, attacker: str) -> float:
        if self.scene.guaranteed:  # nothing was retrieved, so nothing has a score
            return 0.0
        for documents in pool.documents[attacker].values():
            if text in documents.texts:
                return documents.scores[documents.texts.index(text)]
        raise AssertionError(f"{attacker} injects no such text")


def _copy(passage: Passage, seen: Counter[str]) -> Passage:
    """Name a further copy of the same text in the same context."""
    seen[passage.id] += 1
    times = seen[passage.id]
    return passage if times == 1 else replace(passage, id=f"{passage.id}~{times}")


def _best_of_each(pool: QueryPool, assignment: Assignment, by: QueryPool) -> Merged:
    """The best document of every attacker by its score in ``by``, without retrieval and corpus.

    Their order goes by question and answer alone: a trigger has no say in it, and over the
    assignments of a round every attacker has every place alike.
    """
    best = []
    texts_of = pool.injected(assignment)
    for name, documents in sorted(by.injected(assignment).items()):
        i = max(range(len(documents.texts)), key=lambda i: (documents.scores[i], -i))
        position = assignment[name]
        place = digest([pool.query_id, name if position is None else position])
        best.append((place, name, texts_of[name].texts[i]))
    best.sort()
    texts = tuple(text for _, _, text in best)
    owners: dict[str, tuple[str, ...]] = {}
    for _, name, text in best:
        owners[text] = (*owners.get(text, ()), name)
    return Merged(texts, tuple(owners[text] for text in texts), {name: 1 for _, name, _ in best})
