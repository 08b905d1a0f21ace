"""Perplexity of the poison under the configured language model, each text measured once.

The model is that of the attackers (``[helper]``) where it can be opened, else the first victim's
that can. Values are kept in the user's cache by model and text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ragassay.canon import digest
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.setup import Named, Setup
from ragassay.experiments.victim import open_language_model
from ragassay.plugins.access import OpenGenerator, WhiteBoxLM

_FILE = "perplexity.jsonl"


class PoisonPerplexity:
    """A function from texts to perplexities that remembers, also on disk.

    Parameters
    ----------
    model : Named
        A generator that can be opened; it is opened when a text is new.
    cache : Path
        The folder of all caches.
    """

    def __init__(self, model: Named, cache: Path) -> None:
        self.identity = model.identity
        self.measured = 0
        self._part = model
        self._path = Path(cache) / _FILE
        self._opened: WhiteBoxLM | None = None

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity of each text, shape (n,); NaN where nothing can be predicted.

        Raises
        ------
        BackendUnavailable, BackendError
            The model cannot be loaded, or fails.
        StoreError
            The cache cannot be read or written.
        """
        keys = [digest([self.identity, text]) for text in texts]
        known = self._read()
        missing = {k: text for k, text in zip(keys, texts, strict=True) if k not in known}
        if missing:
            if self._opened is None:
                self._opened = open_language_model(self._part)
            values = self._opened.perplexity(list(missing.values()))
            fresh = {key: float(v) for key, v in zip(missing, values, strict=True)}
            self.measured += len(fresh)
            self._append(fresh)
            known |= fresh
        return np.array([known[key] for key in keys], dtype=np.float64)

    def _read(self) -> dict[str, float]:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._error(error) from error
        known = {}
        for line in raw.splitlines():
            try:
                row = json.loads(line)
                value = math.nan if row["perplexity"] is None else float(row["perplexity"])
                known[str(row["key"])] = value
            except (ValueError, KeyError, TypeError):
                continue  # a torn line is measured again
        return known

    def _append(self, fresh: dict[str, float]) -> None:
        lines = [
            json.dumps({"key": key, "perplexity": None if math.isnan(v) else v})
            for key, v in fresh.items()
        ]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock"), self._path.open("ab") as file:
                # A first line break ends what an interrupted run may have torn.
                file.write(("\n" + "\n".join(lines) + "\n").encode("ascii"))
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self._path} cannot be used: {error.strerror or error}; set RAGASSAY_CACHE to a "
            "folder that can be written"
        )


def perplexity_of(setup: Setup, cache: Path) -> PoisonPerplexity | None:
    """What measures perplexity in a run; None unless ``[tax] perplexity`` asks for it.

    Raises
    ------
    ConfigError
        It is asked for, and neither the helper nor a victim is a model that can be opened.
    """
    part = setup.experiment.file.tax
    if part is None or not part.perplexity:
        return None
    models = [setup.helper, *(victim.generator for victim in setup.victims)]
    for model in models:
        if isinstance(model.instance, OpenGenerator):
            return PoisonPerplexity(model, cache)
    raise ConfigError(
        "tax.perplexity needs a language model that can be opened, and "
        f"{', '.join(dict.fromkeys(each.title for each in models))} cannot; name one in [helper], "
        "such as 'smollm2' or 'hf'"
    )
