"""HotFlip: the tokens of a slot are replaced one at a time, led by the gradient.

Source: Ebrahimi et al., "HotFlip: White-Box Adversarial Examples for Text Classification", ACL
2018, as used on retrievers by Zhong et al., "Poisoning Retrieval Corpora by Injecting
Adversarial Passages", EMNLP 2023, and Zou et al., "PoisonedRAG", USENIX Security 2025.

Deviations: a candidate counts only if its text has exactly its tokens. Hits come before scores
when candidates are compared, where hits are counted; released code accepts a candidate if
either is better, and so may lower the score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragassay.attacks.search_tokens import Found, TokenSearch, replaced, top_candidates
from ragassay.plugins.access import Ids, WhiteBoxEncoder

Key = tuple[int, float]


def flip_search(
    search: TokenSearch,
    encoder: WhiteBoxEncoder,
    start: Ids,
    rng: np.random.Generator,
    *,
    iterations: int,
    candidates: int,
    batch: int = 0,
    bars: NDArray[np.float64] | None = None,
    stop_above: float | None = None,
) -> Found:
    """Replace tokens as long as the mean similarity to the queries rises.

    Parameters
    ----------
    search : TokenSearch
        Slot and queries.
    encoder : WhiteBoxEncoder
    start : tuple of int
        The first tokens of the slot.
    rng : numpy.random.Generator
        Draws the position of each iteration, and batches of queries.
    iterations, candidates : int
        Iterations T, and candidates c of each.
    batch : int
        Most queries of one gradient and of one comparison; 0: all of them.
    bars : ndarray, shape (Q,), optional
        What a passage must score above for each query to be a hit; hits then come first.
    stop_above : float, optional
        Stop once the mean similarity is above this.

    Returns
    -------
    Found
        The best tokens met; the start if nothing was better.
    """
    limits = np.full(search.count, np.inf) if bars is None else np.asarray(bars, dtype=np.float64)
    everything = np.arange(search.count)
    slot, (row,) = start, search.similarities([start])
    first = _key(row, limits)
    best, best_ids, trace, done = first, start, [], 0
    for iteration in range(1, iterations + 1 if start else 1):
        if stop_above is not None and best[1] > stop_above:
            break
        done = iteration
        lead = _draw(everything, batch, rng)
        judges = _draw(everything, batch, rng)
        position = int(rng.integers(len(slot)))
        search.new_step()
        [slopes] = search.slopes([slot], search.direction(lead))
        tokens = top_candidates(
            encoder.embeddings, slopes[position], candidates, allowed=search.slot.allowed
        )
        tried = [replaced(slot, position, token) for token in tokens if token != slot[position]]
        tried = search.surviving(tried)
        rows = search.similarities(tried)
        keys = [_key(values[judges], limits[judges]) for values in rows]
        if not keys or max(keys) <= _key(row[judges], limits[judges]):
            continue
        number = keys.index(max(keys))
        slot, row = tried[number], rows[number]
        if _key(row, limits) > best:
            best, best_ids = _key(row, limits), slot
            trace.append((iteration, best[1]))
    return Found(
        ids=best_ids,
        start=first[1],
        score=best[1],
        iterations=done,
        evaluations=search.evaluations,
        losses=search.losses,
        trace=tuple(trace),
    )


def _key(similarities: NDArray[np.float64], bars: NDArray[np.float64]) -> Key:
    return int((similarities > bars).sum()), float(similarities.mean())


def _draw(everything: NDArray[np.intp], batch: int, rng: np.random.Generator) -> NDArray[np.intp]:
    if not 0 < batch < len(everything):
        return everything
    return np.sort(rng.choice(everything, size=batch, replace=False))
