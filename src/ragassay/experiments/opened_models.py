"""The models that defenses look into: each opened once a run, when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.errors import PluginError
from ragassay.experiments.reading_model import ReadingModel
from ragassay.plugins.access import Branches, Ids, OpenGenerator, WhiteBoxLM
from ragassay.types import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragassay.experiments.setup import Named

LOSSES = "token_losses.sqlite"
_CLOSED = (
    "generator '{}' gives no probabilities of tokens, and {}; use one that can be opened, such as "
    "'smollm2' or 'hf'"
)
Count = Callable[[int, int, int], None]
"""Takes numbers of model calls, input tokens and output tokens."""


def with_language_model(
    defenses: Sequence[Named], build: Callable[[], Named], *, wanted: bool = False
) -> tuple[tuple[Named, ...], Named | None]:
    """Make the language model part of the identity of every defense that reads with it.

    Returns
    -------
    tuple
        The defenses, and the model; None, and it is not built, where none declares that it
        reads with one (``reads_language_model``) and nothing else of the run has it ``wanted``.

    Raises
    ------
    PluginError
        The model cannot be built, or does not give its probabilities.
    """
    reading = [getattr(each.instance, "reads_language_model", False) is True for each in defenses]
    if not any(reading) and not wanted:
        return tuple(defenses), None
    model = build()
    if not isinstance(model.instance, OpenGenerator):
        raise PluginError(_CLOSED.format(model.title, "[language_model] scores tokens"))
    mark = digest(model.identity)[:16]
    return tuple(
        replace(each, identity=f"{each.identity}:{mark}") if reads else each
        for each, reads in zip(defenses, reading, strict=True)
    ), model


class OpenedModels:
    """White-box models of one run, shared by all trials.

    Parameters
    ----------
    language_model : Named, optional
        What ``[language_model]`` names; None where no defense reads with it.
    cache : Path
        The folder of the caches.
    """

    def __init__(self, language_model: Named | None, cache: Path) -> None:
        self._part = language_model
        self._cache = cache
        self._lock = threading.Lock()
        self._models: dict[str, WhiteBoxLM] = {}
        self._reading: ReadingModel | None = None

    def victim(self, part: Named) -> WhiteBoxLM:
        """Open a victim's generator.

        Raises
        ------
        PluginError
            It does not give its internals.
        """
        return self._opened(part, "a defense decodes with the victim's probabilities")

    def reading(self) -> ReadingModel:
        """The model that scores texts.

        Raises
        ------
        PluginError
            No defense of the experiment declares that it reads with one.
        StoreError
            Its cache cannot be opened.
        """
        part = self._part
        if part is None:
            raise PluginError(
                "a defense asks for token losses and does not declare it: its class needs "
                "'reads_language_model = True', so that the model becomes part of its key"
            )
        with self._lock:
            if self._reading is None:
                self._reading = ReadingModel(
                    part.identity,
                    lambda: self._opened(part, "[language_model] scores the tokens of passages"),
                    self._cache / LOSSES,
                )
            return self._reading

    def close(self) -> None:
        """Close the cache."""
        if self._reading is not None:
            self._reading.close()

    def _opened(self, part: Named, why: str) -> WhiteBoxLM:
        with self._lock:
            model = self._models.get(part.identity)
            if model is None:
                if not isinstance(part.instance, OpenGenerator):
                    raise PluginError(_CLOSED.format(part.title, why))
                model = self._models[part.identity] = part.instance.white_box()
            return model


class CountedModel:
    """An opened model that counts what one trial asks of it, and can be stopped.

    A sequence that is processed is a model call, and its tokens are input tokens. A token that
    branches append is an output token of each. Everything that processes nothing is passed on.

    Parameters
    ----------
    model : WhiteBoxLM
        The model.
    count : callable
        Hears of calls, input tokens and output tokens.
    check : callable
        Called before each forward pass; raises to stop.
    """

    def __init__(self, model: WhiteBoxLM, count: Count, check: Callable[[], None]) -> None:
        self._model = model
        self._count = count
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def next_logits(self, sequences: Sequence[Ids]) -> NDArray[np.float32]:
        """Logits of the next token of each sequence."""
        self._asked([len(ids) for ids in sequences])
        return self._model.next_logits(sequences)

    def logprob(self, prefix_ids: Ids, continuation_ids: Ids) -> NDArray[np.float32]:
        """Log-probability of each token of a continuation."""
        return self.logprobs([(prefix_ids, continuation_ids)])[0]

    def logprobs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """The same for several pairs."""
        self._asked([len(prefix) + len(rest) for prefix, rest in pairs])
        return self._model.logprobs(pairs)

    @contextmanager
    def branches(self, prefixes: Sequence[Ids]) -> Iterator[Branches]:
        """Grow several sequences by the same tokens."""
        self._asked([len(ids) for ids in prefixes])
        with self._model.branches(prefixes) as found:
            yield _CountedBranches(found, len(prefixes), self._count, self._check)

    def loss_gradient(
        self,
        ids: Ids,
        positions: Sequence[int],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> tuple[float, NDArray[np.float32]]:
        """Loss of a target, and its gradient."""
        self._asked([len(ids)])
        return self._model.loss_gradient(ids, positions, target_slice, weights)

    def losses(
        self,
        sequences: Sequence[Ids],
        target_slice: slice,
        weights: Sequence[float] | None = None,
    ) -> NDArray[np.float32]:
        """The losses of several sequences."""
        self._asked([len(ids) for ids in sequences])
        return self._model.losses(sequences, target_slice, weights)

    def generate(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Answer greedily."""
        self._asked([len(self._model.chat_ids(messages))])
        text = self._model.generate(messages, max_tokens)
        self._count(0, 0, len(self._model.tokenize(text)))
        return text

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity of texts."""
        self._asked([len(self._model.tokenize(text)) for text in texts])
        return self._model.perplexity(texts)

    def _asked(self, lengths: Sequence[int]) -> None:
        self._check()
        self._count(len(lengths), sum(lengths), 0)


class _CountedBranches:
    def __init__(
        self, branches: Branches, size: int, count: Count, check: Callable[[], None]
    ) -> None:
        self._branches = branches
        self._size = size
        self._count = count
        self._check = check

    @property
    def stop(self) -> frozenset[int]:
        return self._branches.stop

    @property
    def logits(self) -> NDArray[np.float32]:
        return self._branches.logits

    def append(self, token: int) -> None:
        self._check()
        self._count(0, 0, self._size)
        self._branches.append(token)


def counted(model: WhiteBoxLM, count: Count, check: Callable[[], None]) -> WhiteBoxLM:
    """Wrap an opened model for one trial; see :class:`CountedModel`."""
    return cast(WhiteBoxLM, CountedModel(model, count, check))
