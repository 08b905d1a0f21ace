"""The table ``[dose]``: tampering with retrieved passages, by a counted dose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ragassay.config.parts import MAX_K, Part, Parts, Strict, as_parts

Control = Literal["closed_book", "irrelevant"]
_RULES = (Part(plugin="entity_swap"), Part(plugin="number_swap"), Part(plugin="negation"))
_SCORING = {"rules": ["polarity", "endorse"]}
_OF_OTHERS = ("attack", "budgets", "paraphrases", "evidence", "utility", "tax")


class DosePart(Strict):
    """Which rules tamper with how many of the passages, and what is asked beside.

    ``doses`` are counts of passages; empty: 0 to k. Dose 0 is a second generation of the clean
    prompt. Each of the ``draws`` chooses other passages: among ``all``, or among those that a
    rule can edit (``editable``). ``contexts = "gold"`` puts the supporting passages of a
    question first and fills up with retrieved ones. ``queries`` draws so many of the questions
    that have an accepted answer; 0 takes all.
    """

    rules: Parts = _RULES
    doses: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_K)], ...], BeforeValidator(as_parts)
    ] = ()
    draws: Annotated[int, Field(ge=1, le=1000)] = 3
    choose: Literal["all", "editable"] = "all"
    contexts: Literal["retrieved", "gold"] = "retrieved"
    queries: Annotated[int, Field(ge=0)] = 0
    controls: Annotated[tuple[Control, ...], BeforeValidator(as_parts)] = (
        "closed_book",
        "irrelevant",
    )
    closed_book_prompt: str = "closed_book"

    @model_validator(mode="after")
    def _everything_once(self) -> DosePart:
        if not self.rules:
            raise ValueError("rules must name at least one tampering rule")
        titles = [rule.title for rule in self.rules]
        for what, values in (("rules", titles), ("doses", self.doses), ("controls", self.controls)):
            twice = sorted({value for value in values if list(values).count(value) > 1})
            if twice:
                hint = "; give one a 'label'" if what == "rules" else ""
                raise ValueError(f"{what} hold {twice[0]!r} twice{hint}")
        return self


def with_dose_defaults(tree: Any) -> Any:
    """Complete a file of the dose protocol: the table, no attack, and the paper's label rule.

    Raises
    ------
    ValueError
        ``[dose]`` stands under another protocol, or the file has a table that the dose
        protocol does not play.
    """
    if not isinstance(tree, Mapping):
        return tree
    name = tree.get("protocol", "aligned")
    if name != "dose":
        if tree.get("dose") is not None:
            raise ValueError(f"[dose] belongs to protocol = 'dose', the protocol is {name!r}")
        return tree
    for key in _OF_OTHERS:
        if key in tree:
            raise ValueError(
                f"protocol = 'dose' has no {key!r}: passages are tampered with by the rules of "
                "[dose]; remove it"
            )
    return {"dose": {}, "scoring": _SCORING, **tree, "attack": []}
