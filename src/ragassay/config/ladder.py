"""The table of the control ladder in an experiment file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ragassay.config.parts import Strict, as_parts

RungName = Literal["template", "prefix_removed", "length_matched", "both", "mimicry"]
FillerName = Literal["clean", "shuffled", "pseudowords"]


class LadderPart(Strict):
    """Which rungs are climbed, what they are padded with, and what is measured on each.

    ``fillers``: all of them for ``length_matched``, the first alone for ``both`` and ``mimicry``.
    ``evaluation``: the first so many attacked questions, 0 for all; the others may calibrate.
    ``rho`` and ``c_a`` are the costs of a miss and of an adjudication, in false blocks, ``kappa``
    the trust factor of the corpus in the rule that uses one.
    ``learned`` trains a scorer on the first rung for each of ``seeds`` and judges all rungs with
    it; ``ablation`` also trains it without each feature. With ``end_to_end`` the victim answers.
    """

    rungs: Annotated[tuple[RungName, ...], BeforeValidator(as_parts)] = (
        "template", "prefix_removed", "length_matched", "both", "mimicry",
    )  # fmt: skip
    fillers: Annotated[tuple[FillerName, ...], BeforeValidator(as_parts)] = (
        "clean", "shuffled", "pseudowords",
    )  # fmt: skip
    evaluation: Annotated[int, Field(ge=0)] = 40
    seeds: Annotated[tuple[int, ...], BeforeValidator(as_parts)] = (11, 22, 33, 44, 55)
    matched_fpr: Annotated[float, Field(gt=0, lt=1)] = 0.05
    rho: Annotated[float, Field(gt=0, le=1_000_000)] = 9.0
    c_a: Annotated[float, Field(ge=0, le=1_000_000)] = 0.3
    kappa: Annotated[float, Field(gt=0, le=1_000_000)] = 4.0
    learned: bool = True
    calibration: Literal["platt", "isotonic"] = "platt"
    ablation: bool = False
    end_to_end: bool = False

    @model_validator(mode="after")
    def _lists_are_distinct(self) -> LadderPart:
        for name in ("rungs", "fillers", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be distinct and not empty, got {list(values)}")
        if self.ablation and not self.learned:
            raise ValueError("ablation = true needs learned = true")
        return self

    @property
    def variants(self) -> tuple[tuple[str, str], ...]:
        """Rungs with their filler, which is empty where nothing is padded."""
        found: list[tuple[str, str]] = []
        for rung in self.rungs:
            if rung == "length_matched":
                found += [(rung, filler) for filler in self.fillers]
            else:
                padded = rung in ("both", "mimicry")
                found.append((rung, self.fillers[0] if padded else ""))
        return tuple(found)


def with_ladder_defaults(tree: Any) -> Any:
    """Add the table of the ladder protocol where it is left out."""
    if isinstance(tree, dict) and tree.get("protocol") == "ladder":
        return {"ladder": {}, **tree}
    return tree


def ladder_faults(file: Any) -> str:
    """Say in one line what keeps an experiment file with a ``[ladder]`` from being played.

    Empty where nothing does.
    """
    if file.protocol != "ladder":
        return f"[ladder] belongs to protocol = 'ladder', the protocol is {file.protocol!r}"
    for part in ("evidence", "utility", "paraphrases"):
        if getattr(file, part) is not None:
            return f"[{part}] is not for protocol = 'ladder'"
    return ""


def variant_name(rung: str, filler: str) -> str:
    """What a trial calls a rung: ``both/clean``, or ``template`` where nothing is padded.

    Examples
    --------
    >>> variant_name("both", "clean"), variant_name("template", "")
    ('both/clean', 'template')
    """
    return f"{rung}/{filler}" if filler else rung
