"""The table of an experiment file that lets attackers compete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ragassay.config.parts import Strict, as_parts

Study = Literal["content", "order", "trigger"]


class ArenaPart(Strict):
    """How attackers compete.

    ``rounds`` are drawn one by one: a question, attackers, and as many wrong answers.
    ``attackers`` lists how many attackers compete, in turn; empty: 2 to all of them, drawn at
    random for each round. ``assignment`` deals the answers out: a Latin square, all
    permutations, or ``draws`` random ones. ``answers`` is the size of the pool of wrong answers
    of a question; with ``proposals`` the helper model adds what the data set lacks. ``single``
    is how many answers of each question every attacker plays alone. ``released`` is a folder
    of documents and scores released with PoisonArena, from which ``only`` takes some attackers.
    ``studies`` are played beside: ``content`` and ``trigger`` the same rounds with other
    documents, ``order`` pairs of attackers, one after the other.

    With ``stopping = "sure"``, ``rounds`` is the limit. Every ``every`` rounds it is asked whether
    the online order has not changed for ``stable_rounds``, every attacker took part in
    ``min_participations`` plays, at least ``min_rounds`` are played, and each pair of neighbors
    is decided in the share ``certainty`` of the resamples.
    """

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    attackers: Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(as_parts)] = ()
    assignment: Literal["latin", "full", "random"] = "latin"
    draws: Annotated[int, Field(ge=1)] = 1
    answers: Annotated[int, Field(ge=2, le=100)] = 6
    proposals: bool = False
    single: Annotated[int, Field(ge=0)] = 1
    released: str = ""
    only: Annotated[tuple[str, ...], BeforeValidator(as_parts)] = ()
    studies: Annotated[tuple[Study, ...], BeforeValidator(as_parts)] = ()
    stopping: Literal["fixed", "sure"] = "fixed"
    every: Annotated[int, Field(ge=1)] = 100
    stable_rounds: Annotated[int, Field(ge=1)] = 200
    min_rounds: Annotated[int, Field(ge=1)] = 500
    min_participations: Annotated[int, Field(ge=1)] = 100
    certainty: Annotated[float, Field(gt=0.5, lt=1)] = 0.95

    @model_validator(mode="after")
    def _fits_together(self) -> ArenaPart:
        if self.only and not self.released:
            raise ValueError("'only' names attackers of the released files; set 'released'")
        if self.draws != 1 and self.assignment != "random":
            raise ValueError(f"'draws' is for assignment = 'random', not {self.assignment!r}")
        for name in ("attackers", "only", "studies"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} must be distinct, got {list(values)}")
        if self.released and "order" in self.studies:
            raise ValueError("the study 'order' crafts poison; released documents are fixed")
        return self


def with_arena_defaults(tree: Any) -> Any:
    """Add the table of the arena protocol where it is left out."""
    if isinstance(tree, dict) and tree.get("protocol") == "arena":
        return {"arena": {}, **tree}
    return tree


def arena_faults(file: Any) -> str:
    """Say in one line what keeps an experiment file with an ``[arena]`` from being played.

    Empty where nothing does.
    """
    if file.protocol != "arena":
        return f"[arena] belongs to protocol = 'arena', the protocol is {file.protocol!r}"
    for part in ("evidence", "utility"):
        if getattr(file, part) is not None:
            return f"[{part}] is not for protocol = 'arena'"
    if file.arena.released and "attack" in file.model_fields_set:
        return "arena.released brings its own attackers; leave [[attack]] out, or released"
    if not file.arena.released and len(file.attack) < 2:
        return "an arena needs at least two [[attack]], or arena.released"
    return ""
