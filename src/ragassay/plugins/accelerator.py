"""How long an accelerator works for an opened model, and which one it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class AcceleratorClock:
    """Adds up the seconds of a CUDA device between events around each piece of work.

    Work on a CPU adds nothing. Pieces within a piece are counted once. Seconds in which the
    device waits for the program within a piece count, as with any pair of events.

    Attributes
    ----------
    seconds : float
        So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    @contextmanager
    def running(self, device: Any) -> Iterator[None]:
        """Time what is done within, on a ``torch.device``."""
        if self._inside or getattr(device, "type", "cpu") != "cuda":
            yield
            return
        import torch

        self._inside = True
        try:
            with torch.cuda.device(device):
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                yield
                last.record()
                last.synchronize()
            self.seconds += first.elapsed_time(last) / 1000
        finally:
            self._inside = False


def device_name() -> str:
    """The accelerator that this process uses, or ``"cpu"``; loads no library by itself.

    Examples
    --------
    >>> isinstance(device_name(), str)
    True
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cpu"
    return f"cuda: {torch.cuda.get_device_name()}"
