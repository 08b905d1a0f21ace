"""The tools of a defense without any model, and hits and queries for tests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragassay import prompts
from ragassay.plugins.access import WhiteBoxLM
from ragassay.types import (
    Hit,
    Message,
    Passage,
    Query,
)

Replies = Callable[[tuple[Message, ...]], str] | Mapping[str, str] | str
"""What a scripted model says: a function of the messages, one answer for everything, or a
mapping in which the first key that occurs in the last message decides."""


_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One prompt that reached a scripted model, and its reply."""

    messages: tuple[Message, ...]
    max_tokens: int | None
    reply: str

    @property
    def text(self) -> str:
        """All turns, joined by newlines."""
        return "\n".join(message.content for message in self.messages)


class ScriptedTools:
    """The tools of a defense, without any model.

    Parameters
    ----------
    replies : callable, mapping or str
        See :data:`Replies`. A mapping without a matching key fails, naming the prompt; give it
        the key ``""``, which always matches, last to have a default.
    template : str
        The victim's prompt, as in the experiment file.
    order : {"rank", "reverse"}
        The experiment's passage order.
    titles : bool
        Whether the victim sees titles.
    encode : callable, optional
        Texts to vectors of shape (n, d); by default :func:`hashing_vectors`.
    seed : int
        Seed of ``rng``.
    language_model : WhiteBoxLM, optional
        What scores texts and stands for the victim's opened model; by default a
        :class:`~ragassay.testing.toys.ToyLM`.
    k : int
        Size of a context.

    Attributes
    ----------
    calls : list of Call
        Every prompt asked so far, in order.
    encoded : list of str
        Every text encoded so far, in order.
    scored : list of str
        Every text whose tokens were scored so far, in order.

    Examples
    --------
    >>> tools = ScriptedTools({"capital": "Ottawa"})
    >>> tools.ask([[Message(role="user", content="What is the capital?")]])
    ['Ottawa']
    """

    def __init__(
        self,
        replies: Replies = "I don't know",
        *,
        template: str = "answer",
        order: Literal["rank", "reverse"] = "rank",
        titles: bool = False,
        encode: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
        seed: int = 0,
        language_model: WhiteBoxLM | None = None,
        k: int = 5,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.k = k
        self.scored: list[str] = []
        self._language_model = language_model
        self.calls: list[Call] = []
        self.encoded: list[str] = []
        self._replies = replies
        self._template = prompts.load(template)
        self._order = order
        self._titles = titles
        self._encode = encode or hashing_vectors

    def ask(
        self, prompts: Sequence[Sequence[Message]], *, max_tokens: int | None = None
    ) -> list[str]:
        """Reply by the script, one raw answer per prompt, in order."""
        replies = []
        for prompt in prompts:
            messages = tuple(prompt)
            reply = _reply(self._replies, messages)
            self.calls.append(Call(messages=messages, max_tokens=max_tokens, reply=reply))
            replies.append(reply)
        return replies

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed by hashing (or by the given function)."""
        self.encoded.extend(texts)
        return self._encode(texts)

    @property
    def victim_model(self) -> WhiteBoxLM:
        """The opened model (by default a toy)."""
        if self._language_model is None:
            from ragassay.testing.toys import ToyLM  # it builds on this module

            self._language_model = ToyLM()
        return self._language_model

    def token_nll(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Score all tokens but the first of each text by the opened model."""
        self.scored.extend(texts)
        model = self.victim_model
        found = []
        for text in texts:
            ids = model.tokenize(text)
            losses = model.logprob(ids[:1], ids[1:]) if len(ids) > 1 else np.zeros(0)
            found.append(0.0 - losses.astype(np.float64))
        return found

    def token_halves(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Cut each text at the middle of its tokens."""
        model = self.victim_model
        ids = [model.tokenize(text) for text in texts]
        return [
            (model.decode(each[: (len(each) + 1) // 2]), model.decode(each[(len(each) + 1) // 2 :]))
            for each in ids
        ]

    def answer_prompt(self, query: Query, hits: Sequence[Hit]) -> tuple[Message, ...]:
        """Render the victim's prompt: passages one per line."""
        contexts = "\n".join(self.passage_text(hit) for hit in self.ordered(hits))
        return self._template.render({"contexts": contexts, "question": query.text})

    def passage_text(self, hit: Hit) -> str:
        """The text, below its title where titles are on and there is one."""
        title = hit.passage.title if self._titles else ""
        return f"{title}\n{hit.passage.text}" if title else hit.passage.text

    def ordered(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Hits in prompt order."""
        return tuple(hits) if self._order == "rank" else tuple(reversed(hits))


def hashing_vectors(texts: Sequence[str], dimension: int = 64) -> NDArray[np.float32]:
    """Embed texts as sums of hashed word vectors.

    Texts that share words are close, the same text always gets the same vector, and no model is
    needed.

    Parameters
    ----------
    texts : sequence of str, length n
        Texts; one without a word gives the zero vector.
    dimension : int
        Length d of a vector, from 1 to 256.

    Returns
    -------
    ndarray of float32, shape (n, d)
        Unnormalized vectors.
    """
    vectors = np.zeros((len(texts), dimension), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in _WORD.findall(text.lower()):
            seed = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(dimension)
            vectors[row] += (np.frombuffer(seed, dtype=np.uint8).astype(np.float32) - 127.5) / 74.0
    return vectors


def make_hits(
    texts: Sequence[str], *, scores: Sequence[float] | None = None, prefix: str = "p"
) -> tuple[Hit, ...]:
    """Wrap texts as hits: ranks from 1, ids ``prefix`` + rank, falling scores."""
    values = (
        scores if scores is not None else [round(0.9137 - 0.05 * i, 4) for i in range(len(texts))]
    )
    return tuple(
        Hit(passage=Passage(id=f"{prefix}{rank}", text=text), rank=rank, score=score)
        for rank, (text, score) in enumerate(zip(texts, values, strict=True), start=1)
    )


def make_query(text: str = "What is the capital of Canada?") -> Query:
    """Wrap a question as a query."""
    return Query(id="q1", text=text, group="g1")


def _reply(replies: Replies, messages: tuple[Message, ...]) -> str:
    if isinstance(replies, str):
        return replies
    if not isinstance(replies, Mapping):
        return replies(messages)
    last = messages[-1].content
    for key, reply in replies.items():
        if key in last:
            return reply
    raise AssertionError(f"no scripted reply matches the prompt ending in {last[-80:]!r}")
