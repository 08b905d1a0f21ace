"""What searches over the tokens of a passage share: candidates, re-encoding, exact scores.

A search changes the tokens of a *slot*, and the passage is a text. Not every sequence of tokens
is the tokens of its own text: words melt together or fall apart when it is tokenized again.
So a candidate counts only if its text has exactly its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.plugins.access import Ids, WhiteBoxEncoder

_SETTLE = 4  # rounds of decoding and tokenizing after which most texts stay as they are


def top_candidates(
    embedding: ArrayLike,
    grad: ArrayLike,
    k: int,
    *,
    increase: bool = True,
    allowed: NDArray[np.bool_] | None = None,
) -> list[int]:
    """Rank tokens by the first-order gain of putting them in place of another.

    The gain of token v is the product of its embedding and the gradient, up to a constant.

    Parameters
    ----------
    embedding : array_like, shape (V, d)
        Input embeddings.
    grad : array_like, shape (d,)
        Gradient at the position.
    k : int
        How many to return; fewer where fewer are allowed.
    increase : bool
        Whether the score is to rise.
    allowed : ndarray of bool, shape (V,), optional
        Which tokens may be chosen.

    Returns
    -------
    list of int
        Token ids, best first; ties in the order of ids.

    References
    ----------
    Ebrahimi et al., HotFlip, ACL 2018.

    Examples
    --------
    >>> top_candidates([[1, 0], [0, 1], [1, 1], [-1, 0]], [0.5, 2], 2)
    [2, 1]
    """
    gains = np.asarray(embedding) @ np.asarray(grad)
    return best_tokens(gains if increase else -gains, k, allowed=allowed)


def best_tokens(
    gains: NDArray[np.floating], k: int, *, allowed: NDArray[np.bool_] | None = None
) -> list[int]:
    """Return the ids of the k largest gains, best first; ties in the order of ids."""
    ids = np.arange(len(gains)) if allowed is None else np.flatnonzero(allowed)
    values = gains[ids]
    if 0 < k < len(ids):
        # Everything that can be among the k best, ties at the border included.
        border = np.partition(values, len(values) - k)[len(values) - k]
        ids, values = ids[values >= border], values[values >= border]
    order = np.argsort(-values, kind="stable")[: max(k, 0)]
    return [int(i) for i in ids[order]]


class Slot:
    """Tokens to be searched, between two fixed texts.

    Parameters
    ----------
    encoder : WhiteBoxEncoder
    before, after : str
        The fixed texts; one space separates them from the slot.
    max_words : int, optional
        A passage with more words does not count.
    """

    wrapped = False

    def __init__(
        self,
        encoder: WhiteBoxEncoder,
        *,
        before: str = "",
        after: str = "",
        max_words: int | None = None,
    ) -> None:
        self._encoder = encoder
        self._before = before
        self._after = after
        self._max_words = max_words
        self._front = encoder.tokenize(before) if before else ()
        self._back: Ids = ()
        if after:
            # In its place: some tokenizers give the first word of a text other tokens.
            lead = encoder.tokenize(_join(before, "a"))
            whole = encoder.tokenize(_join(before, "a", after))
            same = whole[: len(lead)] == lead
            self._back = whole[len(lead) :] if same else encoder.tokenize(after)

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Tokens that may be put into the slot."""
        return self._encoder.usable

    @property
    def room(self) -> int | None:
        """Tokens of the slot that the encoder reads, None for no limit."""
        limit = self._encoder.max_tokens
        if limit is None:
            return None
        frame = len(self._encoder.opening) + len(self._encoder.closing)
        # What comes after may be cut, the slot must not.
        return max(limit - frame - len(self._front), 0)

    @property
    def word_room(self) -> int | None:
        """Words that the slot may hold, None for no limit."""
        if self._max_words is None:
            return None
        return max(self._max_words - len(_join(self._before, self._after).split()), 0)

    def start_of(self, text: str) -> Ids:
        """The tokens that a text has in the slot, with which the search can start.

        Texts that do not survive decoding (unknown characters) are changed until they do.
        """
        ids = self._tokens(text)
        for _ in range(_SETTLE):
            if self.survives(ids):
                break
            ids = self._tokens(self._encoder.decode(ids).strip())
        return ids

    def sequence(self, ids: Ids) -> Ids:
        """The tokens of the passage. Mask tokens stand for nothing yet and are left out."""
        mask = self._encoder.mask
        slot = ids if mask is None or mask not in ids else tuple(i for i in ids if i != mask)
        return (*self._front, *slot, *self._back)

    def differentiable(self, ids: Ids) -> tuple[Ids, int]:
        """The tokens with the masks in place, and where the slot starts."""
        return (*self._front, *ids, *self._back), len(self._front)

    def text(self, ids: Ids) -> str:
        """The passage."""
        return _join(self._before, self._encoder.decode(ids).strip(), self._after)

    def survives(self, ids: Ids) -> bool:
        """Whether the text has exactly these tokens, and no more words than it may."""
        text = self.text(ids)
        if self._max_words is not None and len(text.split()) > self._max_words:
            return False
        return self._encoder.tokenize(text) == self.sequence(ids)

    def survives_by_count(self, ids: Ids) -> bool:
        """Whether the text has as many tokens, whichever they are."""
        return len(self._encoder.tokenize(self.text(ids))) == len(self.sequence(ids))

    def _tokens(self, text: str) -> Ids:
        whole = self._encoder.tokenize(_join(self._before, text))
        return whole[len(self._front) :]


class RawSlot:
    """Tokens to be searched, special ones included, without any check.

    The passage is what is left when the special tokens are dropped: what released code does.

    Parameters
    ----------
    encoder : WhiteBoxEncoder
    before, after : tuple of int
        Fixed tokens, special ones included.
    """

    wrapped = True

    def __init__(self, encoder: WhiteBoxEncoder, *, before: Ids = (), after: Ids = ()) -> None:
        self._encoder = encoder
        self._before = before
        self._after = after

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """All tokens."""
        return np.ones(self._encoder.vocabulary, dtype=np.bool_)

    def sequence(self, ids: Ids) -> Ids:
        """The tokens that are encoded."""
        return (*self._before, *ids, *self._after)

    def differentiable(self, ids: Ids) -> tuple[Ids, int]:
        """The same tokens, and where the slot starts."""
        return self.sequence(ids), len(self._before)

    def text(self, ids: Ids) -> str:
        """The passage, decoded as a whole."""
        return self._encoder.decode(self.sequence(ids))

    def survives(self, ids: Ids) -> bool:
        """True: nothing is checked."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to.

    ``start`` and ``score`` are mean similarities of the tokens, before and at the best;
    ``trace`` has the score after each iteration in which the best rose; ``evaluations`` counts
    the sequences that were encoded, ``losses`` the candidates that did not survive.
    """

    ids: Ids
    start: float
    score: float
    iterations: int
    evaluations: int
    losses: int
    trace: tuple[tuple[int, float], ...] = ()


class TokenSearch:
    """Exact similarities and gradients of a slot's tokens, with the queries fixed.

    Candidates are scored in batches of sequences of one length; equal sequences are scored once
    a step.

    Parameters
    ----------
    encoder : WhiteBoxEncoder
    slot : Slot or RawSlot
    queries : ndarray, shape (Q, D)
        Embedded queries, unnormalized.

    Attributes
    ----------
    evaluations, losses : int
        Sequences encoded, and candidates that did not survive re-encoding.
    """

    def __init__(
        self, encoder: WhiteBoxEncoder, slot: Slot | RawSlot, queries: NDArray[np.floating]
    ) -> None:
        self.slot = slot
        self.evaluations = 0
        self.losses = 0
        self._encoder = encoder
        self._queries = comparable(encoder, queries)
        self._known: dict[Ids, NDArray[np.float64]] = {}

    @property
    def count(self) -> int:
        """Number Q of queries."""
        return len(self._queries)

    def direction(self, rows: Sequence[int] | NDArray[np.intp] | slice) -> NDArray[np.float32]:
        """The mean of some queries, which the gradient points to."""
        mean: NDArray[np.float32] = self._queries[rows].mean(axis=0).astype(np.float32)
        return mean

    def new_step(self) -> None:
        """Forget the scores of the last step."""
        self._known.clear()

    def surviving(self, candidates: Iterable[Ids], *, by_count: bool = False) -> list[Ids]:
        """Those candidates that their text leaves as they are, each once."""
        distinct = list(dict.fromkeys(candidates))
        if by_count and isinstance(self.slot, Slot):
            kept = [ids for ids in distinct if self.slot.survives_by_count(ids)]
        else:
            kept = [ids for ids in distinct if self.slot.survives(ids)]
        self.losses += len(distinct) - len(kept)
        return kept

    def similarities(self, candidates: Sequence[Ids]) -> NDArray[np.float64]:
        """Similarity of each candidate to each query, shape (n, Q)."""
        whole = [self.slot.sequence(ids) for ids in candidates]
        missing = [ids for ids in dict.fromkeys(whole) if ids not in self._known]
        if missing:
            vectors = self._encoder.embed_ids(missing, wrapped=self.slot.wrapped)
            rows = comparable(self._encoder, vectors) @ self._queries.T
            self._known.update(zip(missing, rows, strict=True))
            self.evaluations += len(missing)
        found: NDArray[np.float64] = np.array([self._known[ids] for ids in whole])
        return found.reshape(len(whole), self.count)

    def slopes(
        self, slots: Sequence[Ids], direction: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """Gradient of the similarity to a direction at each slot token, (len(slot), d) each."""
        whole = [self.slot.differentiable(ids) for ids in slots]
        _, found = self._encoder.gradients(
            [ids for ids, _ in whole], direction, wrapped=self.slot.wrapped
        )
        return [
            slope[start : start + len(ids)]
            for slope, (_, start), ids in zip(found, whole, slots, strict=True)
        ]


def comparable(encoder: WhiteBoxEncoder, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Vectors whose products are the encoder's similarities: normalized for the cosine."""
    exact = vectors.astype(np.float64)
    if encoder.similarity == "dot":
        return exact
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    result: NDArray[np.float64] = exact / np.where(lengths > 0, lengths, 1)
    return result


def replaced(ids: Ids, position: int, token: int) -> Ids:
    """The ids with one token changed."""
    return (*ids[:position], token, *ids[position + 1 :])


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
