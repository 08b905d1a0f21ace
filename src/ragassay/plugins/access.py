"""White-box access: what a gradient attack may do with an encoder or a language model.

Both protocols count what they do: ``forwards`` are the sequences that went through the model,
``backwards`` those of them that were also differentiated. Token ids never include special
tokens unless a parameter says so, and everything comes back as NumPy arrays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragassay.types import Message

Similarity = Literal["dot", "cosine"]
Ids = tuple[int, ...]
"""Token ids of one sequence, without special tokens unless said otherwise."""

_PLACEHOLDER = re.compile(r"\s*(?:[\[<]unused[_-]?\d+[\]>]|madeupword\d+|<\|.*\|>)\s*")


def usable_tokens(pieces: Sequence[str], special: Collection[int]) -> NDArray[np.bool_]:
    r"""Tell which tokens a text may hold.

    Parameters
    ----------
    pieces : sequence of str, length V
        The text of each token by itself.
    special : collection of int
        Special and added tokens, and ids that the tokenizer does not know.

    Returns
    -------
    ndarray of bool, shape (V,)
        False for special, unused, control, white-space and non-printable tokens, and for
        parts of a character.

    Examples
    --------
    >>> usable_tokens(["[PAD]", "[unused3]", "a", " b", "\n", "\ufffd", ""], {0}).tolist()
    [False, False, True, True, False, False, False]
    """
    known = set(special)
    return np.array(
        [
            number not in known
            and bool(piece.strip())
            and piece.isprintable()
            and "\ufffd" not in piece
            and _PLACEHOLDER.fullmatch(piece) is None
            for number, piece in enumerate(pieces)
        ],
        dtype=np.bool_,
    )


@runtime_checkable
class WhiteBoxEncoder(Protocol):
    """An encoder whose tokens, input embeddings and gradients are open.

    ``similarity`` is the one that ranks passages. Where it is ``"cosine"``, the similarity to a
    direction normalizes the passage's vector alone, so that the similarity to the mean of some
    unit vectors is the mean of the cosines.
    """

    @property
    def identity(self) -> str:
        """Everything that can change a result."""

    @property
    def similarity(self) -> Similarity:
        """How passages are ranked."""

    @property
    def vocabulary(self) -> int:
        """Number V of token ids, special and unused ones included."""

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a passage, special tokens included; longer ones are cut."""

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """Input embeddings, shape (V, d). Read only."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token by itself, length V."""

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which tokens a text may hold, shape (V,).

        Special, unused, control and non-printable tokens are not among them.
        """

    @property
    def opening(self) -> Ids:
        """What stands in front of a text's tokens when it is encoded, such as ``[CLS]``."""

    @property
    def closing(self) -> Ids:
        """What stands behind them, such as ``[SEP]``."""

    @property
    def mask(self) -> int | None:
        """The mask token, if there is one."""

    @property
    def forwards(self) -> int:
        """Sequences encoded so far."""

    @property
    def backwards(self) -> int:
        """Sequences differentiated so far (each also counts as a forward)."""

    def tokenize(self, text: str) -> Ids:
        """Token ids of a text, without special tokens, not cut."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; special tokens are left out."""

    def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Embed texts as the retriever does: shape (n, D), unnormalized."""

    def embed_ids(
        self, sequences: Sequence[Ids], *, max_tokens: int | None = None, wrapped: bool = False
    ) -> NDArray[np.float32]:
        """Embed passages by their token ids, shape (n, D), unnormalized.

        Special tokens are added (``wrapped`` true: they are already there), the sequences are
        batched by length and not padded, and cut to ``max_tokens`` (None: the
        passage limit), special tokens included.
        """

    def gradient(
        self, ids: Ids, direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[float, NDArray[np.float32]]:
        """Similarity to a direction (D,), and its gradient, shape (len(ids), d).

        The gradient is with respect to the input embeddings of the given tokens.
        """

    def gradients(
        self, sequences: Sequence[Ids], direction: NDArray[np.float32], *, wrapped: bool = False
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """:meth:`gradient` of several sequences at once: scores (n,) and one array for each."""


@runtime_checkable
class Branches(Protocol):
    """Several texts that grow by the same tokens, each from a beginning of its own."""

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end an answer."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits of the token that follows in each branch, shape (n, V)."""

    def append(self, token: int) -> None:
        """Append one token to every branch; what stood before is not processed again."""


@runtime_checkable
class WhiteBoxLM(Protocol):
    """A causal language model whose tokens, logits and gradients are open."""

    @property
    def identity(self) -> str:
        """Everything that can change a result."""

    @property
    def vocabulary(self) -> int:
        """Number V of token ids, special and unused ones included."""

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """Input embeddings, shape (V, d). Read only."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token by itself, length V."""

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which tokens a text may hold, shape (V,): no special or non-printable ones."""

    @property
    def forwards(self) -> int:
        """Sequences processed so far (a generated token counts as one)."""

    @property
    def backwards(self) -> int:
        """Sequences differentiated so far (each also counts as a forward)."""

    def tokenize(self, text: str) -> Ids:
        """Token ids of a text, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; special tokens are left out."""

    def chat_ids(self, messages: Sequence[Message]) -> Ids:
        """Render a prompt up to where the answer starts.

        The model's chat template is applied; exactly one begin-of-text token is in front where
        the model has one.
        """

    def next_logits(self, sequences: Sequence[Ids]) -> NDArray[np.float32]:
        """Logits of the token that follows each sequence, shape (n, V).

        Sequences are taken as they are; a shared beginning is processed once.
        """

    def branches(self, prefixes: Sequence[Ids]) -> AbstractContextManager[Branches]:
        """Grow several sequences by the same tokens, side by side.

        The model is held as long as the context lasts: open it for one answer, and close it.
        """

    def logprob(self, prefix_ids: Ids, continuation_ids: Ids) -> NDArray[np.float32]:
        """Natural-log probability of each continuation token, given all before it."""

    def logprobs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """:meth:`logprob` of several (prefix, continuation) pairs at once."""

    def loss_gradient(
        self,
        ids: Ids,
        positions: Sequence[int],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> tuple[float, NDArray[np.float32]]:
        """Loss of the tokens ``ids[target_slice]``, and its gradient at some positions.

        The loss is the weighted mean of the cross-entropies (nats) of the target tokens, with
        one weight each (None: all equal). The gradient, shape (len(positions), V), is with
        respect to the one-hot tokens there; the most negative entries are the best flips.
        """

    def losses(
        self,
        sequences: Sequence[Ids],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> NDArray[np.float32]:
        """The loss of :meth:`loss_gradient` for sequences of equal length, shape (n,)."""

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Answer greedily."""

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity of each text, shape (n,).

        The first token is not predicted; NaN where nothing is left to predict.
        """


@runtime_checkable
class OpenEncoder(Protocol):
    """An encoder plug-in that can be opened for white-box attacks."""

    def white_box(
        self,
        *,
        similarity: Similarity,
        query_tokens: int | None = None,
        passage_tokens: int | None = None,
    ) -> WhiteBoxEncoder:
        """Open it; the limits are those with which the retriever encodes (None: its own)."""


@runtime_checkable
class OpenGenerator(Protocol):
    """A generator plug-in that can be opened for white-box attacks."""

    def white_box(self) -> WhiteBoxLM:
        """Open it."""
