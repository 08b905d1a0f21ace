"""Labels beside the answers they belong to, as CSV that a spreadsheet can be trusted with."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ragassay.data.delimited import safe_cell
from ragassay.errors import ConfigError
from ragassay.types import Query, ScoreRecord, TrialRecord

LABELS = ("target_positive", "correct", "abstained")
COLUMNS = (
    "query_id", "group_id", "setting", "attack", "budget", "defense", "retrieval", "scorer",
    *LABELS, "stance", "answer",
)  # fmt: skip
_SURROGATE = re.compile("[\ud800-\udfff]")


def score_table(
    trials: Iterable[tuple[Query, TrialRecord, Sequence[ScoreRecord | None]]],
    known: Collection[str],
    scorers: Sequence[str],
) -> Iterator[str]:
    """Write one row for each answer and scorer; each answer comes with its labels by ``scorers``.

    ``known`` are the scorers that the run has. A label is ``yes``, ``no`` or ``uncertain``; empty
    where the rule does not apply or the answer was not scored. Cells that a spreadsheet would take
    for formulas start with a quote.

    Raises
    ------
    ConfigError
        The run has no labels of a scorer.
    """
    for name in scorers:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"no scores of {name!r:.60}; there are: {there}")
    return _rows(trials, scorers)


def _rows(
    trials: Iterable[tuple[Query, TrialRecord, Sequence[ScoreRecord | None]]],
    scorers: Sequence[str],
) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for query, trial, scores in trials:
        spec = trial.spec
        for scorer, score in zip(scorers, scores, strict=True):
            cells = [
                query.id, query.group, spec.setting, spec.attack, str(spec.budget),
                spec.defense_label, "poisoned" if spec.budget else "clean", scorer,
                *(_label(score, name) for name in LABELS),
                score.stance if score else "", trial.answer or "",
            ]  # fmt: skip
            writer.writerow([safe_cell(escaped(cell)) for cell in cells])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def escaped(text: str) -> str:
    r"""Write lone surrogates as JSON does (``\ud800``): they are no characters of UTF-8."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _label(score: ScoreRecord | None, name: str) -> str:
    if score is None:
        return ""
    value = getattr(score, name)
    if value is None:
        return "uncertain" if name in score.uncertain else ""
    return "yes" if value else "no"
