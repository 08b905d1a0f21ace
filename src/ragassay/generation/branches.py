"""Several prompts of one model, decoded side by side with the same tokens.

Each prompt is read alone at its exact length, so that its companions cannot change it; what the
prompts begin with in common is read once. From then on one token a step goes through all of
them together, over keys and values that are padded on the left and masked there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragassay.plugins.access import Ids

_SHARED = 16  # tokens: a shorter common beginning is not worth a forward pass of its own


class _Opened(Protocol):
    """What is needed of an opened model."""

    @property
    def stop(self) -> frozenset[int]: ...

    @property
    def device(self) -> Any: ...

    def forward(self, sequences: int, **inputs: Any) -> Any: ...


class LanguageModelBranches:
    """Prompts with their keys and values, ready to grow; see :func:`open_branches`.

    Parameters
    ----------
    model : opened model
        Runs forward passes.
    lengths : sequence of int, length n
        Tokens of each prompt.
    caches : sequence of list, length n
        For each prompt and layer the keys and values, shape (1, heads, length, d).
    logits : ndarray of float32, shape (n, V)
        Logits behind the prompts.
    """

    def __init__(
        self,
        model: _Opened,
        lengths: Sequence[int],
        caches: Sequence[list[tuple[Any, Any]]],
        logits: NDArray[np.float32],
    ) -> None:
        import torch
        from transformers import DynamicCache

        self._model = model
        self._logits = logits
        width = max(lengths)
        device = model.device
        self._positions = torch.tensor([[length] for length in lengths], device=device)
        places = torch.arange(width, device=device)[None]
        self._mask = (places >= width - self._positions).long()
        self._cache = DynamicCache()
        for layer in range(len(caches[0])):
            keys, values = (
                torch.cat([_left_padded(cache[layer][part], width) for cache in caches])
                for part in (0, 1)
            )
            self._cache.update(keys, values, layer)

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._model.stop

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits of the next token of each prompt, shape (n, V)."""
        return self._logits

    def append(self, token: int) -> None:
        """Let one token follow in every prompt."""
        import torch

        count = len(self._positions)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        with torch.inference_mode():
            output = self._model.forward(
                count,
                input_ids=torch.full_like(self._positions, token),
                attention_mask=self._mask,
                position_ids=self._positions,
                cache=self._cache,
                logits_to_keep=1,
            )
            self._logits = output.logits[:, -1].float().cpu().numpy()
        self._positions = self._positions + 1


def open_branches(model: _Opened, prefixes: Sequence[Ids]) -> LanguageModelBranches:
    """Read prompts and get ready to let them grow.

    Raises
    ------
    ValueError
        There is no prompt, or one is empty.
    """
    import torch
    from transformers import DynamicCache

    if not prefixes or not all(prefixes):
        raise ValueError("need prompts of at least one token each")
    shared = common_beginning(prefixes)
    with torch.inference_mode():
        beginning = DynamicCache()
        if shared:
            _read(model, prefixes[0][:shared], beginning)
        caches, logits = [], []
        for ids in prefixes:
            cache = DynamicCache()
            for number, layer in enumerate(beginning.layers):
                cache.update(layer.keys, layer.values, number)
            logits.append(_read(model, ids[shared:], cache))
            caches.append([(layer.keys, layer.values) for layer in cache.layers])
        return LanguageModelBranches(
            model, [len(ids) for ids in prefixes], caches, np.stack(logits)
        )


def common_beginning(prefixes: Sequence[Ids]) -> int:
    """How many tokens to read once for all: at least one of each prompt is left.

    Examples
    --------
    >>> common_beginning([(*range(20), 7), (*range(20), 8, 9)])
    20
    >>> common_beginning([(1, 2), (1, 3)])
    0
    """
    if len(prefixes) < 2:
        return 0
    most = min(len(ids) for ids in prefixes) - 1
    first = prefixes[0]
    count = next((i for i in range(most) if any(ids[i] != first[i] for ids in prefixes)), most)
    return count if count >= _SHARED else 0


def _read(model: _Opened, ids: Ids, cache: Any) -> NDArray[np.float32]:
    import torch

    output = model.forward(
        1,
        input_ids=torch.tensor([list(ids)], device=model.device),
        cache=cache,
        logits_to_keep=1,
    )
    found: NDArray[np.float32] = output.logits[0, -1].float().cpu().numpy()
    return found


def _left_padded(states: Any, width: int) -> Any:
    import torch

    # Zeros, which the mask hides: a step always sees at least its own token.
    return torch.nn.functional.pad(states, (0, 0, width - states.shape[2], 0))
