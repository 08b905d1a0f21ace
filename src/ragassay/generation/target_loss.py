"""The loss of a target within a sequence: its place, and the cross-entropy of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def target_span(ids: Sequence[int], target: slice) -> tuple[int, int]:
    """First position of a target and the one behind it; ValueError where the ids lack it."""
    start, stop, step = target.indices(len(ids))
    asked = len(ids) if target.stop is None else target.stop
    if step != 1 or not 1 <= start < stop or asked > len(ids):
        raise ValueError(f"need a target within tokens 1 to {len(ids) - 1}, got {target}")
    return start, stop


def target_loss(logits: Any, wanted: Any, weights: Sequence[float] | None) -> Any:
    """Weighted mean cross-entropy, in nats; ValueError where the weights do not fit."""
    import torch

    losses = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
    if weights is None:
        return losses.mean()
    if len(weights) != len(losses) or min(weights) < 0 or sum(weights) <= 0:
        raise ValueError(
            f"need {len(losses)} weights, none negative and one positive, got {list(weights)}"
        )
    shares = torch.tensor(weights, dtype=losses.dtype, device=losses.device)
    return (losses * shares).sum() / shares.sum()
