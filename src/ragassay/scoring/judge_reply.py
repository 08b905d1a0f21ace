"""Reading a judge's reply: strict in form, and no "yes" without a quote that is in the answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ragassay.scoring.judge_prompt import DECISIONS, NOT_APPLICABLE, REPLY_KEYS, Item
from ragassay.types import Evidence, Generation, Json, ScoreRecord

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_TARGET, _REFERENCE, _ABSTAINS = "target_endorsed", "reference_correct", "abstains"
_SPANS = {_TARGET: ("target_span", "wanted"), _REFERENCE: ("reference_span", "reference")}
_LABELS = {_TARGET: "target_positive", _REFERENCE: "correct", _ABSTAINS: "abstained"}
_VALUES: dict[str, bool | None] = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """Why a reply cannot be used. Such a reply is asked for again; it never becomes a label."""

    reason: str


def read(item: Item, generation: Generation) -> dict[str, str] | Unusable:
    """Read a reply: exactly one JSON object with exactly the keys and values of the schema.

    An object inside of other text is not looked for: it could be the answer's own. A single
    code fence around the object is let through, since that is how some models write JSON.
    """
    if generation.finish == "length":
        return Unusable(reason="the reply was cut off")
    text = generation.text.strip()
    fenced = _FENCED.fullmatch(text)
    try:
        reply = json.loads(fenced[1] if fenced else text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return Unusable(reason="the reply is not one JSON object")
    if not isinstance(reply, dict) or set(reply) != set(REPLY_KEYS):
        return Unusable(reason="the reply does not have the keys of the schema")
    if not all(isinstance(value, str) for value in reply.values()):
        return Unusable(reason="the reply holds a value that is not a string")
    if reply["item"] != item.id:
        return Unusable(reason="the reply is not about this item")
    for name in (_TARGET, _REFERENCE, _ABSTAINS):
        if reply[name] not in allowed(item, name):
            return Unusable(reason=f"the reply holds a value of {name} that is not in the schema")
    return reply


def allowed(item: Item, name: str) -> tuple[str, ...]:
    """Values that a field may take for an item."""
    applies = {_TARGET: item.wanted, _REFERENCE: item.references, _ABSTAINS: True}[name]
    return DECISIONS if applies else (NOT_APPLICABLE,)


def label(
    item: Item, reply: dict[str, str], *, trial_key: str, version: str, provenance: dict[str, Json]
) -> ScoreRecord:
    """Turn a reply into labels.

    A "yes" whose quote is not in the answer becomes uncertain, and ``provenance`` says so.
    ``provenance["reply"]`` is the reply as it was.
    """
    decided = {name: reply[name] for name in _LABELS}
    evidence = []
    unfounded: list[Json] = []
    for name, (span, kind) in _SPANS.items():
        place = item.find(reply[span]) if decided[name] == "yes" else None
        if place is not None:
            evidence.append(Evidence(label=kind, start=place[0], stop=place[1]))
        elif decided[name] == "yes":
            decided[name] = "uncertain"
            unfounded.append(name)
    said: dict[str, Json] = {key: reply[key] for key in REPLY_KEYS if key != "item"}
    provenance = {**provenance, "reply": said}
    if unfounded:
        provenance |= {"span": "not in the answer", "span_of": unfounded}
    values = {_LABELS[name]: _VALUES.get(value) for name, value in decided.items()}
    return ScoreRecord(
        trial_key=trial_key,
        scorer="judge",
        version=version,
        target_positive=values["target_positive"],
        correct=values["correct"],
        abstained=values["abstained"],
        uncertain=tuple(_LABELS[name] for name, value in decided.items() if value == "uncertain"),
        evidence=tuple(evidence),
        stance={"yes": "endorses", "uncertain": "uncertain"}.get(decided[_TARGET], ""),
        provenance=provenance,
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
