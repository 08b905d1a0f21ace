"""Decoding lanes: rows of a batch whose shapes never change, each at its own position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragassay.types import Request


@dataclass(slots=True, eq=False, kw_only=True)
class Row:
    """A request on its way: what it asks, where it stands."""

    index: int
    request: Request
    key: str
    ids: list[int]
    prefix: int
    slots: int
    random: Any = None
    written: list[int] = field(default_factory=list)
    seconds: float = 0.0


class Lanes:
    """A fixed number of decoding lanes with a fixed number of cache slots each."""

    def __init__(self, model: Any, count: int, slots: int) -> None:
        import torch

        self.rows: dict[int, tuple[Row, int]] = {}
        self.free = list(range(count))[::-1]
        self.cache: Any = None
        self._shape = count, slots
        self._hidden = torch.finfo(model.dtype).min
        self._mask = torch.full(
            (count, 1, 1, slots), self._hidden, dtype=model.dtype, device=model.device
        )
        # An empty lane sees one slot: a softmax over nothing would be NaN.
        self._mask[..., 0] = 0
        self._positions = torch.zeros(count, dtype=torch.long, device=model.device)

    def active(self) -> list[tuple[Row, int]]:
        """List the rows that decode, each with its lane."""
        return list(self.rows.values())

    def admit(self, row: Row, prompt: Any) -> None:
        """Copy the keys and values of a prompt, shape (1, heads, length, d), into a lane."""
        if self.cache is None:
            self.cache = _lane_cache(prompt, *self._shape, self._positions)
        lane = self.free.pop()
        length = len(row.ids)
        for own, new in zip(self.cache.layers, prompt.layers, strict=True):
            for slots, filled in ((own.keys, new.keys), (own.values, new.values)):
                slots[lane, :, :length] = filled[0]
                slots[lane, :, length:] = 0
        self._mask[lane, ..., :length] = 0
        self.rows[row.index] = row, lane

    def open_next_slot(self) -> tuple[Any, Any]:
        """Let each row see the slot of its newest token; return mask and positions."""
        for row, lane in self.rows.values():
            slot = len(row.ids) + len(row.written) - 1
            self._positions[lane] = slot
            self._mask[lane, ..., slot] = 0
        return self._mask, self._positions[:, None]

    def release(self, row: Row) -> None:
        """Free the lane of a row; what it holds is masked until the next row comes."""
        _, lane = self.rows.pop(row.index)
        self._mask[lane, ..., 1:] = self._hidden
        self._positions[lane] = 0
        self.free.append(lane)

    def clear(self) -> list[Row]:
        """Free all lanes; return the rows that were in them."""
        rows = [row for row, _ in self.rows.values()]
        for row in rows:
            self.release(row)
        return rows


def _lane_cache(prompt: Any, count: int, slots: int, positions: Any) -> Any:
    """Build a transformers cache whose layers write each lane at its own position."""
    import torch
    from transformers.cache_utils import Cache, DynamicLayer

    lanes = torch.arange(count, device=positions.device)

    class Lane(DynamicLayer):  # type: ignore[misc]
        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            self.keys[lanes, :, positions] = keys[:, :, 0]
            self.values[lanes, :, positions] = values[:, :, 0]
            return self.keys, self.values

    layers = []
    for source in prompt.layers:
        layer = Lane()
        layer.lazy_initialization(source.keys, source.values)
        layer.keys, layer.values = (
            tensor.new_zeros(count, tensor.shape[1], slots, tensor.shape[3])
            for tensor in (source.keys, source.values)
        )
        layers.append(layer)
    return Cache(layers=layers)
