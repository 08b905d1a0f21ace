"""ragassay: does a RAG system, and a defense put into it, withstand poisoned evidence?

::

    import ragassay

    experiment = ragassay.load_experiment("examples/demo.toml")
    result = ragassay.run(experiment)
    print(result.summary["cells"][0]["effects"]["N"])

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragassay.errors import RagassayError
from ragassay.types import Hit, Message, Passage, PoisonSet, Query, Target, Verdict

if TYPE_CHECKING:
    from ragassay.experiments.monitor import Monitor
    from ragassay.experiments.protocols import analyze
    from ragassay.experiments.runner import RunResult, run
    from ragassay.experiments.setup import Experiment, load_experiment

__version__ = "0.1.0"

__all__ = [
    "Experiment",
    "Hit",
    "Message",
    "Monitor",
    "Passage",
    "PoisonSet",
    "Query",
    "RagassayError",
    "RunResult",
    "Target",
    "Verdict",
    "analyze",
    "load_experiment",
    "run",
]

_LAZY = {
    "Experiment": "ragassay.experiments.setup",
    "Monitor": "ragassay.experiments.monitor",
    "RunResult": "ragassay.experiments.runner",
    "analyze": "ragassay.experiments.protocols",
    "load_experiment": "ragassay.experiments.setup",
    "run": "ragassay.experiments.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ragassay' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
