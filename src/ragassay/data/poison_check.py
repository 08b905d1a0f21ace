"""What is odd about a set of poison, before it is played: ``ragassay poison check``.

It reads the files of this project and those that published attacks release. Whether an answer
or the question stands in a passage is decided on lower-case text with punctuation turned into
spaces, by whole tokens; white space does not count.
"""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ragassay.data.assembly import ReleasedTarget
from ragassay.data.check import Finding, has_mojibake
from ragassay.data.entries import Entry
from ragassay.data.jsonl import is_json_lines, read_jsonl
from ragassay.data.poison_file import PoisonLine, is_poison_file, read_poison
from ragassay.data.released import read_targets
from ragassay.matching import has_content
from ragassay.stats.intervals import wilson

_QUANTILES = {"min": 0.0, "p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95,
              "max": 1.0}  # fmt: skip
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’“”–—…", " "))
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SPACING = frozenset("\t\n\r")
_NONE: Mapping[str, Any] = {"count": 0, "n": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The passages for one question, and what the file says of their making.

    ``unverified`` and ``asked`` are None where the file does not say.
    """

    target: ReleasedTarget
    unverified: int | None = None
    asked: int | None = None


def read_texts(path: str | Path) -> dict[str, list[Texts]]:
    """Read poison in any known layout, by the name of its attack.

    Returns
    -------
    dict
        In file order; the name is empty where the layout has none. A line that serves several
        paraphrases of a question counts once for each.

    Raises
    ------
    DataError
        The file is damaged or its layout unknown.
    """
    path = Path(path)
    if is_json_lines(path):
        if is_poison_file(path):
            found = [_own(line) for line in read_poison(path)]
        elif _is_serial(path):
            found = [
                Texts(target=each)
                for line, row in read_jsonl(path)
                for each in _serial(Entry(row, path, line))
            ]
        else:
            found = [Texts(target=each) for each in read_targets(path)]
    else:
        found = [Texts(target=each) for each in read_targets(path)]
    sets: dict[str, list[Texts]] = {}
    for texts in found:
        sets.setdefault(texts.target.method, []).append(texts)
    return sets


def check_poison(
    name: str,
    texts: Sequence[Texts],
    *,
    tokens: Callable[[str], int] | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    """Count what matters in a set of poison.

    Parameters
    ----------
    name : str
        Of the attack.
    texts : sequence of Texts
        A question each.
    tokens : callable, optional
        Number of tokens of a passage for an encoder, special tokens included.
    limit : int, optional
        Where that encoder cuts passages.

    Returns
    -------
    dict
        Plain JSON values: counts with their denominators, shares with 95% Wilson intervals,
        word-length quantiles, and ``findings``.
    """
    passages = [(each.target, text) for each in texts for text in each.target.texts]
    bare = [_normalized(text) for _, text in passages]
    over = None
    if tokens is not None and limit is not None:
        longer = sum(tokens(text) > limit for _, text in passages)
        over = {"limit": limit, **_share(longer, len(passages))}
    held = list(zip((target for target, _ in passages), bare, strict=True))
    report: dict[str, Any] = {
        "set": name,
        "questions": len({each.target.query_id for each in texts}),
        "rows": len(texts),
        "passages": len(passages),
        "duplicates": {
            "exact": _repeated(text for _, text in passages),
            "normalized": _repeated(bare),
        },
        "target": _holding(held, lambda target: target.wanted),
        "correct": _holding(held, lambda target: target.references),
        "question": _holding(held, lambda target: (target.question,)),
        "words": _quantiles([len(text.split()) for _, text in passages]),
        "encoding": _faults(text for _, text in passages),
        "empty": sum(not has_content(text) for _, text in passages),
        "over_limit": over,
        "unverified": _sum(each.unverified for each in texts),
        "asked": _sum(each.asked for each in texts),
        "short": [each.target.query_id for each in texts
                  if each.asked is not None and len(each.target.texts) < each.asked],
        "bare": [each.target.query_id for each in texts if not each.target.texts],
    }  # fmt: skip
    report["findings"] = [
        {"severity": f.severity, "where": f.where, "message": f.message} for f in _findings(report)
    ]
    return report


# --------------------------------------------------------------------------------- the files


def _own(line: PoisonLine) -> Texts:
    verdicts = [detail.get("verified") for detail in line.poison.details if "verified" in detail]
    return Texts(
        target=ReleasedTarget(
            query_id=line.poison.query_id,
            question=line.question,
            references=line.references,
            wanted=line.poison.wanted,
            texts=tuple(passage.text for passage in line.poison.passages),
            method=line.poison.attack,
            complete=True,
            line=line.line,
        ),
        unverified=verdicts.count(False) if verdicts else None,
        asked=line.asked,
    )


def _is_serial(path: Path) -> bool:
    first = next(read_jsonl(path), None)
    return first is not None and {"base_query_id", "queries", "docs"} <= first[1].keys()


def _serial(entry: Entry) -> Iterable[ReleasedTarget]:
    whole = ReleasedTarget(
        query_id=entry.id("base_query_id"),
        references=entry.answers("correct_answers"),
        wanted=entry.answers("target_answer"),
        texts=entry.strings("docs"),
        method=entry.optional_text("method"),
        complete=True,
        position=entry.position("answer_position"),
        line=entry.line,
    )
    for number, item in enumerate(entry.array("queries"), start=1):
        part = entry.part("queries", number, item)
        yield replace(whole, query_id=part.id("query_id"), question=part.text("query"))


# -------------------------------------------------------------------------------- the counts


def _normalized(text: str) -> str:
    """Lower case, punctuation as spaces, one space between tokens and around them."""
    return f" {' '.join(text.lower().translate(_PUNCTUATION).split())} "


def _holding(
    held: Sequence[tuple[ReleasedTarget, str]],
    looked_for: Callable[[ReleasedTarget], tuple[str, ...]],
) -> dict[str, Any] | None:
    """Count passages that hold one of some phrases, among those that have such phrases."""
    cache: dict[str, str] = {}
    count = n = 0
    for target, passage in held:
        phrases = [cache.setdefault(each, _normalized(each)) for each in looked_for(target)]
        phrases = [phrase for phrase in phrases if phrase.strip()]
        if phrases:
            n += 1
            count += any(phrase in passage for phrase in phrases)
    return _share(count, n) if n else None


def _share(count: int, n: int) -> dict[str, Any]:
    interval = wilson(count, n)
    if interval is None:
        return {"count": count, "n": n, "value": None, "low": None, "high": None}
    return {"count": count, "n": n, "value": count / n, "low": interval.low, "high": interval.high}


def _repeated(texts: Iterable[str]) -> int:
    """Passages that repeat an earlier one."""
    counts = Counter(texts)
    return sum(counts.values()) - len(counts)


def _quantiles(lengths: Sequence[int]) -> dict[str, float] | None:
    if not lengths:
        return None
    found = np.quantile(np.array(lengths, dtype=np.float64), list(_QUANTILES.values()))
    return dict(zip(_QUANTILES, (float(value) for value in found), strict=True))


def _faults(texts: Iterable[str]) -> dict[str, int]:
    """Passages with each kind of fault in their characters."""
    faults = dict.fromkeys(("mojibake", "replacement", "control", "bidi"), 0)
    for text in texts:
        misread = has_mojibake(text)
        faults["mojibake"] += misread
        faults["replacement"] += "\ufffd" in text
        faults["control"] += any(
            unicodedata.category(char) in {"Cc", "Cs"}
            and char not in _SPACING
            and not (misread and "\x80" <= char <= "\x9f")  # the bytes that were misread
            for char in text
        )
        faults["bidi"] += any(char in _BIDI for char in text)
    return faults


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _findings(report: Mapping[str, Any]) -> list[Finding]:
    n, encoding = report["passages"], report["encoding"]
    target, correct = report["target"] or _NONE, report["correct"] or _NONE
    over, short, bare = report["over_limit"] or _NONE, report["short"], report["bare"]
    rules: list[tuple[Literal["error", "warning", "note"], int, str]] = [
        ("error", not n and not bare, "set without a passage"),
        ("error", report["empty"], f"of {n} passages have no word"),
        ("error", len(bare), f"questions have no passage: {_some(bare)}"),
        ("warning", encoding["control"], f"of {n} passages hold control characters"),
        ("warning", encoding["bidi"], f"of {n} passages hold marks of text direction"),
        ("warning", encoding["replacement"], f"of {n} passages hold replacement characters"),
        ("warning", encoding["mojibake"], f"of {n} passages hold UTF-8 read as Windows-1252"),
        ("warning", report["duplicates"]["normalized"],
         f"of {n} passages repeat an earlier one but for spelling"),
        ("warning", target["n"] - target["count"],
         f"of {target['n']} passages do not hold the target answer"),
        ("note", correct["count"], f"of {correct['n']} passages hold a correct answer"),
        ("warning", over["count"],
         f"of {n} passages have more than the encoder's {over.get('limit')} tokens and are cut"),
        ("warning", report["unverified"] or 0, f"of {n} passages are marked unverified"),
        ("warning", len(short), f"questions got fewer passages than asked for: {_some(short)}"),
    ]  # fmt: skip
    where = report["set"] or "passages"
    return [
        Finding(severity=severity, where=where, message=f"{int(count)} {message}")
        for severity, count, message in rules
        if count
    ]


def _some(ids: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(ids) - shown} more" if len(ids) > shown else ""
    return ", ".join(ids[:shown]) + more
