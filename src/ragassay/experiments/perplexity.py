"""Perplexity of the poison under the model that ``[language_model]`` names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragassay.experiments.opened_models import OpenedModels
from ragassay.experiments.reading_model import ReadingModel
from ragassay.experiments.setup import Setup


class PoisonPerplexity:
    """A function from texts to perplexities; each text is scored once, for all runs.

    Parameters
    ----------
    model : ReadingModel
        Scores the tokens, through its cache.
    """

    def __init__(self, model: ReadingModel) -> None:
        self.identity = model.identity
        self._model = model

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Perplexity of each text, shape (n,); NaN where nothing is predicted.

        Raises
        ------
        BackendError
            The model cannot be loaded, or fails.
        StoreError
            Its cache cannot be read or written.
        """
        losses = self._model.token_nll(texts)
        return np.array(
            [np.exp(each.mean()) if len(each) else np.nan for each in losses], dtype=np.float64
        )


def perplexity_of(setup: Setup, models: OpenedModels) -> PoisonPerplexity | None:
    """What measures perplexity in a run; None unless ``[tax] perplexity`` asks for it."""
    part = setup.experiment.file.tax
    if part is None or not part.perplexity:
        return None
    return PoisonPerplexity(models.reading())
