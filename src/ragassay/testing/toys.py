"""Toy models with open internals, small enough to be searched by brute force.

A gradient attack is tested on them without torch: the encoder is linear, so that a
first-order gain is the exact gain, and its 50 words make 2,500 triggers of two tokens.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragassay.plugins.access import Branches, Ids, Similarity
from ragassay.testing.scene import AttackScene
from ragassay.types import Message

__all__ = ["WORDS", "AttackScene", "ToyBranches", "ToyEncoder", "ToyLM"]

WORDS = tuple(consonant + vowel for consonant in "bdfgklmnpr" for vowel in "aeiou")
"""The 50 words that the toys know. Any other word stands for one of them."""

_SPECIAL = ("[CLS]", "[SEP]", "[MASK]")
_PARTS = re.compile(r"\[(?:CLS|SEP|MASK)\]|\w+", re.IGNORECASE)


class ToyEncoder:
    """The mean of token embeddings, then the dot product or the cosine.

    Parameters
    ----------
    similarity : {"dot", "cosine"}
    special : bool
        Whether there are ``[CLS]``, ``[SEP]`` and ``[MASK]`` (ids 50 to 52). Those that frame a
        passage then count in the mean, with embeddings of their own.
    merges : mapping of (int, int) to int
        Neighboring tokens that a text melts into another token: what makes a sequence of
        tokens differ from the tokens of its text.
    embeddings : ndarray, shape (V, d), optional
        The table; by default random numbers of a fixed seed, d = 8.
    seed : int
        Seed of the table.
    max_tokens : int, optional
        Where passages are cut.

    Examples
    --------
    >>> toy = ToyEncoder()
    >>> toy.tokenize("Ba, be!"), toy.decode((0, 1))
    ((0, 1), 'ba be')
    """

    def __init__(
        self,
        *,
        similarity: Similarity = "dot",
        special: bool = False,
        merges: Mapping[tuple[int, int], int] | None = None,
        embeddings: NDArray[np.float32] | None = None,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> None:
        size = len(WORDS) + (len(_SPECIAL) if special else 0)
        if embeddings is None:
            embeddings = np.random.default_rng(seed).normal(size=(size, 8)).astype(np.float32)
        self.embeddings = np.array(embeddings, dtype=np.float32)
        self.embeddings.flags.writeable = False
        self.similarity: Similarity = similarity
        self.max_tokens = max_tokens
        self.identity = f"toy:{similarity}:{seed}"
        self.vocabulary = len(self.embeddings)
        self.pieces = (WORDS + _SPECIAL)[: self.vocabulary]
        self.usable = np.arange(self.vocabulary) < len(WORDS)
        first = len(WORDS)
        self.opening: Ids = (first,) if special else ()
        self.closing: Ids = (first + 1,) if special else ()
        self.mask = first + 2 if special else None
        self.forwards = 0
        self.backwards = 0
        self.batches: list[int] = []
        self._merges = dict(merges or {})

    def tokenize(self, text: str) -> Ids:
        """Token ids of a text; neighbors melt where ``merges`` says so."""
        ids: list[int] = []
        for part in _PARTS.findall(text):
            number = self._number(part)
            while ids and (ids[-1], number) in self._merges:
                number = self._merges[ids.pop(), number]
            ids.append(number)
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The words, one space apart; special tokens are left out."""
        return " ".join(self.pieces[i] for i in ids if self.usable[i])

    def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Embed texts, shape (n, d)."""
        return self.embed_ids([self.tokenize(text) for text in texts])

    def embed_ids(
        self, sequences: Sequence[Ids], *, max_tokens: int | None = None, wrapped: bool = False
    ) -> NDArray[np.float32]:
        """Embed token ids, shape (n, d); a sequence without tokens is the zero vector."""
        self.forwards += len(sequences)
        self.batches.append(len(sequences))
        limit = self.max_tokens if max_tokens is None else max_tokens
        rows = [self._frame(ids, limit, wrapped) for ids in sequences]
        found = [
            self.embeddings[list(row)].mean(axis=0, dtype=np.float64)
            if row
            else np.zeros(self.embeddings.shape[1])
            for row in rows
        ]
        return np.array(found, dtype=np.float32).reshape(len(rows), self.embeddings.shape[1])

    def gradient(
        self, ids: Ids, direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[float, NDArray[np.float32]]:
        """Similarity to a direction, and its gradient at each token."""
        scores, found = self.gradients([ids], direction, wrapped=wrapped)
        return float(scores[0]), found[0]

    def gradients(
        self, sequences: Sequence[Ids], direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Similarities and exact gradients."""
        vectors = self.embed_ids(sequences, wrapped=wrapped).astype(np.float64)
        self.backwards += len(sequences)
        toward = np.asarray(direction, dtype=np.float64)
        scores, slopes = vectors @ toward, np.repeat(toward[None], len(vectors), axis=0)
        if self.similarity == "cosine":
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / lengths
            scores = unit @ toward
            slopes = (toward - scores[:, None] * unit) / lengths
        gradients = []
        for ids, slope in zip(sequences, slopes, strict=True):
            size = len(self._frame(ids, self.max_tokens, wrapped))
            here = np.repeat(slope[None] / max(size, 1), len(ids), axis=0)
            here[max(size - (0 if wrapped else len(self.opening + self.closing)), 0) :] = 0
            gradients.append(here.astype(np.float32))
        return scores.astype(np.float32), gradients

    def best(
        self, direction: NDArray[np.float32], length: int, *, before: Ids = (), after: Ids = ()
    ) -> tuple[float, Ids]:
        """The highest similarity that any slot of ``length`` usable tokens reaches, and it.

        All combinations are tried: 2,500 for two tokens.
        """
        slots = list(product(np.flatnonzero(self.usable).tolist(), repeat=length))
        table = self.embeddings.astype(np.float64)
        fixed = self._frame((*before, *after), None, wrapped=False)
        total = table[list(fixed)].sum(axis=0)
        vectors = table[np.array(slots)].sum(axis=1) + total
        vectors /= len(fixed) + length
        if self.similarity == "cosine":
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        scores = vectors @ np.asarray(direction, dtype=np.float64)
        place = int(np.argmax(scores))
        return float(scores[place]), slots[place]

    def _number(self, word: str) -> int:
        if word.upper() in _SPECIAL:
            known = len(WORDS) + _SPECIAL.index(word.upper())
            if known < self.vocabulary:
                return known
        if word.lower() in WORDS:
            return WORDS.index(word.lower())
        return zlib.crc32(word.lower().encode("utf-8", "surrogatepass")) % len(WORDS)

    def _frame(self, ids: Ids, limit: int | None, wrapped: bool) -> Ids:
        if wrapped:
            return tuple(ids)[:limit]
        room = None if limit is None else max(limit - len(self.opening) - len(self.closing), 0)
        return (*self.opening, *tuple(ids)[:room], *self.closing)


class ToyLM:
    """A language model whose logits are linear in the mean embedding of all tokens so far.

    Token 50 opens a text and ends an answer. Parameters are random numbers of a fixed seed.

    Examples
    --------
    >>> toy = ToyLM()
    >>> toy.next_logits([toy.tokenize("ba be")]).shape
    (1, 51)
    """

    def __init__(self, *, seed: int = 0, scale: float = 2.0) -> None:
        rng = np.random.default_rng(seed)
        self.vocabulary = len(WORDS) + 1
        self.identity = f"toy-lm:{seed}:{scale}"
        self.begin = len(WORDS)
        self.pieces = (*WORDS, "<end>")
        self.usable = np.arange(self.vocabulary) < len(WORDS)
        self.embeddings = rng.normal(size=(self.vocabulary, 8)).astype(np.float32)
        self.embeddings.flags.writeable = False
        self.forwards = 0
        self.backwards = 0
        self._head = scale * rng.normal(size=(8, self.vocabulary))

    def tokenize(self, text: str) -> Ids:
        """Token ids; an unknown word stands for a known one."""
        return tuple(
            WORDS.index(word)
            if word in WORDS
            else zlib.crc32(word.encode("utf-8", "surrogatepass")) % len(WORDS)
            for word in re.findall(r"\w+", text.lower())
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The words, one space apart; the end token is left out."""
        return " ".join(self.pieces[i] for i in ids if self.usable[i])

    def chat_ids(self, messages: Sequence[Message]) -> Ids:
        """The begin token, then all contents."""
        return (self.begin, *self.tokenize(" ".join(message.content for message in messages)))

    def next_logits(self, sequences: Sequence[Ids]) -> NDArray[np.float32]:
        """Logits of the next token, shape (n, V)."""
        self.forwards += len(sequences)
        rows = [self._logits(ids)[-1] for ids in sequences]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.vocabulary)

    @contextmanager
    def branches(self, prefixes: Sequence[Ids]) -> Iterator[Branches]:
        """Grow several sequences by the same tokens."""
        yield ToyBranches(self, prefixes)

    def logprob(self, prefix_ids: Ids, continuation_ids: Ids) -> NDArray[np.float32]:
        """Natural-log probability of each continuation token."""
        return self.logprobs([(prefix_ids, continuation_ids)])[0]

    def logprobs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """The same for several pairs."""
        if any(not prefix for prefix, _ in pairs):
            raise ValueError("a prefix is empty; give at least the begin-of-text token")
        self.forwards += len(pairs)
        results = []
        for prefix, continuation in pairs:
            ids = (*prefix, *continuation)
            places = np.arange(len(prefix), len(ids))
            found = _log_softmax(self._logits(ids))[places - 1, list(continuation)]
            results.append(found.astype(np.float32))
        return results

    def loss_gradient(
        self,
        ids: Ids,
        positions: Sequence[int],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> tuple[float, NDArray[np.float32]]:
        """Weighted mean cross-entropy of the target, and its exact one-hot gradient."""
        self.forwards += 1
        self.backwards += 1
        start, stop, _ = target_slice.indices(len(ids))
        shares = _shares(stop - start, weights)
        logs = _log_softmax(self._logits(ids))
        loss, gradient = 0.0, np.zeros((len(positions), self.vocabulary))
        for place, share in zip(range(start, stop), shares, strict=True):
            loss -= share * logs[place - 1, ids[place]]
            error = np.exp(logs[place - 1])
            error[ids[place]] -= 1
            slope = self.embeddings.astype(np.float64) @ (self._head @ error) * (share / place)
            gradient[np.array(list(positions), dtype=int) < place] += slope
        return float(loss), gradient.astype(np.float32)

    def losses(
        self,
        sequences: Sequence[Ids],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> NDArray[np.float32]:
        """The loss of each of some sequences of equal length, shape (n,)."""
        found = [self.loss_gradient(ids, (), target_slice, weights)[0] for ids in sequences]
        self.backwards -= len(sequences)
        return np.array(found, dtype=np.float32)

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Answer greedily."""
        ids = self.chat_ids(messages)
        start = len(ids)
        while len(ids) - start < max_tokens:
            token = int(np.argmax(self.next_logits([ids])[0]))
            if token == self.begin:
                break
            ids = (*ids, token)
        return self.decode(ids[start:])

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity without the first token; NaN for fewer than two tokens."""
        result = np.full(len(texts), np.nan)
        for i, text in enumerate(texts):
            ids = self.tokenize(text)
            if len(ids) > 1:
                result[i] = np.exp(-self.logprob(ids[:1], ids[1:]).mean(dtype=np.float64))
        return result

    def _logits(self, ids: Ids) -> NDArray[np.float64]:
        if not ids:
            raise ValueError("a sequence is empty; give at least the begin-of-text token")
        table = self.embeddings[list(ids)].astype(np.float64)
        means = np.cumsum(table, axis=0) / np.arange(1, len(ids) + 1)[:, None]
        logits: NDArray[np.float64] = means @ self._head
        return logits


class ToyBranches:
    """Sequences of a :class:`ToyLM` that grow by the same tokens.

    Parameters
    ----------
    model : ToyLM
    prefixes : sequence of tuple of int
        What each begins with.
    """

    def __init__(self, model: ToyLM, prefixes: Sequence[Ids]) -> None:
        self._model = model
        self._sequences = [tuple(ids) for ids in prefixes]
        self.stop = frozenset({model.begin})
        self.logits = model.next_logits(self._sequences)

    def append(self, token: int) -> None:
        """Append one token to every sequence."""
        self._sequences = [(*ids, token) for ids in self._sequences]
        self.logits = self._model.next_logits(self._sequences)


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _shares(count: int, weights: Sequence[float] | None) -> NDArray[np.float64]:
    if weights is None:
        return np.full(count, 1 / count)
    if len(weights) != count:
        raise ValueError(f"need {count} weights, got {len(weights)}")
    values = np.array(weights, dtype=np.float64)
    shares: NDArray[np.float64] = values / values.sum()
    return shares
