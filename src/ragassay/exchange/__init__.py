"""Answers from anywhere, as a run folder; and a run folder's answers, for elsewhere.

::

    source = FourFiles(clean_undefended=..., poisoned_undefended=..., defended={...})
    answers = read(source)                      # checks everything, writes nothing
    write_folder(answers, Path("runs/mine"))    # whole or not at all
    export(Path("runs/mine"), Path("answers"), format="jsonl")

Every source is read twice: once to check it, once to write it. Only what identifies an
answer is remembered between, so that the memory does not grow with the texts of the answers.
"""

from __future__ import annotations

from ragassay.exchange.check import Answers, read
from ragassay.exchange.export import Exported, Selection, export
from ragassay.exchange.files import open_file
from ragassay.exchange.folder import write_folder
from ragassay.exchange.four import FourFiles
from ragassay.exchange.joined import Joined
from ragassay.exchange.rows import Row, Source
from ragassay.exchange.saved import SavedAnswers
from ragassay.exchange.table import Table

__all__ = [
    "Answers",
    "Exported",
    "FourFiles",
    "Joined",
    "Row",
    "SavedAnswers",
    "Selection",
    "Source",
    "Table",
    "export",
    "open_file",
    "read",
    "write_folder",
]
