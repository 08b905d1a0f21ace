"""Labels beside the answers they belong to, as CSV that a spreadsheet can be trusted with."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

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
    trials: Iterable[tuple[Query, TrialRecord]],
    scores: Mapping[tuple[str, str], ScoreRecord],
    scorers: Sequence[str],
) -> str:
    """Write one row for each answer and scorer.

    A label is ``yes``, ``no`` or ``uncertain``; empty where the rule does not apply or the
    answer was not scored. Cells that a spreadsheet would take for formulas start with a quote.

    Raises
    ------
    ConfigError
        The run has no labels of a scorer.
    """
    known = sorted({scorer for _, scorer in scores})
    for name in scorers:
        if name not in known:
            raise ConfigError(f"no scores of {name!r:.60}; there are: {', '.join(known) or 'none'}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for query, trial in trials:
        spec = trial.spec
        for scorer in scorers:
            score = scores.get((trial.key, scorer))
            cells = [
                query.id, query.group, spec.setting, spec.attack, str(spec.budget),
                spec.defense_label, "poisoned" if spec.budget else "clean", scorer,
                *(_label(score, name) for name in LABELS),
                score.stance if score else "", trial.answer or "",
            ]  # fmt: skip
            writer.writerow([safe_cell(escaped(cell)) for cell in cells])
    return text.getvalue()


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
