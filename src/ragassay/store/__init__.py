"""The run folder on disk: text, appended line by line, read in bounded memory.

:mod:`~ragassay.store.folder` is what others use; :mod:`~ragassay.store.segments` and
:mod:`~ragassay.store.codecs` are its files, :mod:`~ragassay.store.index` finds single records,
:mod:`~ragassay.store.columns` holds many of them, and :mod:`~ragassay.store.remote` brings a folder
from elsewhere.
"""

from ragassay.store.folder import STREAMS, RunFolder
from ragassay.store.lines import VERSION
from ragassay.store.records import edits_from, poison_from, score_from, trial_from

__all__ = [
    "STREAMS",
    "VERSION",
    "RunFolder",
    "edits_from",
    "poison_from",
    "score_from",
    "trial_from",
]
