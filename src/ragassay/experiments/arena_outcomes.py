"""Who won the plays of a run folder, under each rule and defense."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragassay.arena.figures import Play, Strengths, strengths
from ragassay.arena.outcomes import Judgment, judge_labels, untargeted_success
from ragassay.config import ArenaPart
from ragassay.errors import NotEstimable
from ragassay.experiments.trial import score_key
from ragassay.stats.ranking import Floats, ranks
from ragassay.stats.ranking_certainty import Decision, StoppingRule, decide
from ragassay.stats.ranking_online import OnlineRule, online_path, stable_rounds
from ragassay.store import RunFolder
from ragassay.types import ScoreRecord, TrialRecord

Body = Mapping[str, Any]
SINGLES, ROUNDS, ORDER = ("single",), ("round",), ("order",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One play of the records: what was dealt, and what stood in the context."""

    body: Body
    number: int
    scene: str

    @property
    def assignment(self) -> Mapping[str, int | None]:
        """The position of the answer that each attacker wants."""
        dealt: Mapping[str, int | None] = self.body["assignments"][self.number]
        return dealt

    @property
    def played(self) -> Mapping[str, Any]:
        """Digest of the context, hits, injected, contexts without untargeted attackers."""
        found: Mapping[str, Any] = self.body["played"][self.scene][self.number]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The records of an arena by place: (question, setting, defense, digest of the context)."""

    rounds: Sequence[Body]
    trials: Mapping[tuple[str, str, str, str], TrialRecord]
    scores: Mapping[tuple[str, str], ScoreRecord]

    @classmethod
    def of(cls, folder: RunFolder) -> Outcomes:
        """Read a run folder."""
        order = {"single": 0, "round": 1, "order": 2}
        bodies = [body for _, body in folder.read("rounds")]
        return cls(
            rounds=sorted(bodies, key=lambda body: (order[body["kind"]], body["index"])),
            trials={
                (t.spec.query_id, t.spec.setting, t.spec.defense_label, t.spec.poison): t
                for t in folder.trials().values()
            },
            scores=folder.scores(),
        )

    def asked(self, kinds: Collection[str], scene: str) -> list[Asked]:
        """The plays of some kinds on a scene, in the order of their draws."""
        return [
            Asked(body=body, number=number, scene=scene)
            for body in self.rounds
            if body["kind"] in kinds and scene in body["played"]
            for number in range(len(body["assignments"]))
        ]

    def trial(self, query_id: str, setting: str, defense: str, context: str) -> TrialRecord | None:
        """The trial of a context, if it is done."""
        found = self.trials.get((query_id, setting, defense, context))
        return found if found is not None and found.status == "done" else None

    def score(
        self, query_id: str, setting: str, defense: str, context: str, scorer: str, target: int = 0
    ) -> ScoreRecord | None:
        """What a scorer says of the answer to a context for the target of a position."""
        trial = self.trial(query_id, setting, defense, context)
        if trial is None:
            return None
        return self.scores.get((score_key(trial.key, f"a{target + 1}"), scorer))

    def correct(
        self, query_id: str, setting: str, defense: str, context: str, scorer: str
    ) -> bool | None:
        """Whether the answer to a context is correct."""
        found = self.score(query_id, setting, defense, context, scorer)
        return None if found is None else found.correct

    def judgment(self, asked: Asked, defense: str, scorer: str) -> Judgment:
        """Who won a play, who lost, and who could not be judged."""
        setting, query = asked.scene.rpartition("|")[0].rpartition("|")[0], asked.body["query_id"]
        played = asked.played
        labels: dict[str, bool | None] = {}
        for attacker, position in sorted(asked.assignment.items()):
            if position is not None:
                found = self.score(query, setting, defense, played["context"], scorer, position)
                labels[attacker] = None if found is None else found.target_positive
                continue
            without = played["without"].get(attacker)
            labels[attacker] = untargeted_success(
                present=without is not None,
                correct_with=self.correct(query, setting, defense, played["context"], scorer),
                correct_without=None
                if without is None
                else self.correct(query, setting, defense, without, scorer),
            )
            if self.trial(query, setting, defense, played["context"]) is None:
                labels[attacker] = None
        return judge_labels(labels)

    def plays(
        self, kinds: Collection[str], scene: str, defense: str, scorer: str, k: int
    ) -> list[Play]:
        """Plays with their judgments, as the figures of :mod:`ragassay.arena.figures` take them."""
        return [
            Play(
                round=each.body["index"],
                query_id=each.body["query_id"],
                judgment=self.judgment(each, defense, scorer),
                k=k,
                hits=each.played["hits"],
                injected=each.played["injected"],
                cluster=each.body["cluster"],
            )
            for each in self.asked(kinds, scene)
        ]


def primary_scene(resolved: Mapping[str, Any]) -> str:
    """The scene that leads: the first setting, at the largest number of documents."""
    setting = next(iter(resolved["settings"]))
    return f"{setting}|{max(resolved['experiment']['budgets'])}|retrieved"


def places_of(plays: Sequence[Play], names: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Winners and losers of each play as positions in ``names``; others are left out."""
    place = {name: i for i, name in enumerate(names)}
    return [
        (
            [place[n] for n in play.judgment.winners if n in place],
            [place[n] for n in play.judgment.losers if n in place],
        )
        for play in plays
    ]


def path_of(plays: Sequence[Play], names: Sequence[str], rule: OnlineRule = "batch") -> Floats:
    """Online strengths after each round, shape (rounds, n): its plays follow each other."""
    path = online_path(len(names), places_of(plays, names), rule=rule)
    last = [i for i, p in enumerate(plays) if i + 1 == len(plays) or plays[i + 1].round != p.round]
    return path[np.array(last, dtype=np.intp)]


def decision(
    plays: Sequence[Play], found: Strengths, rule: StoppingRule, drawn: int
) -> tuple[Decision, int]:
    """What a stopping rule says of the rounds so far, and for how many the order is stable."""
    history = [list(map(int, row)) for row in ranks(path_of(plays, found.names))]
    stable = stable_rounds(history)
    told = decide(
        rule, rounds=drawn, participations=found.participations, stable=stable,
        ranking=found.ranking,
    )  # fmt: skip
    return told, stable


def rule_of(part: Mapping[str, Any]) -> StoppingRule:
    """The stopping rule of the settings."""
    return StoppingRule(
        stable_rounds=part["stable_rounds"],
        min_rounds=part["min_rounds"],
        max_rounds=part["rounds"],
        min_participations=part["min_participations"],
        certainty=part["certainty"],
    )


def enough(
    folder: RunFolder, part: ArenaPart, untargeted: Collection[str], rules: Sequence[str],
    drawn: int,
) -> bool:  # fmt: skip
    """Tell whether a run may stop after ``drawn`` rounds, by the first rule that needs no model.

    A folder that is played again holds later rounds too; they must not change what was decided
    without them.
    """
    resolved = folder.read_json("resolved.json")
    scorer = resolved["headline"] if resolved["headline"] in rules else rules[0]
    every = Outcomes.of(folder).plays(ROUNDS, primary_scene(resolved), "none", scorer, 1)
    plays = [play for play in every if play.round < drawn]
    # Hits are not needed for strengths, so that the size of the context does not matter.
    seed = resolved["experiment"]["seed"]
    try:
        found = strengths(plays, leave_out=untargeted, seed=seed)
    except NotEstimable:
        return False
    rounds = len({play.round for play in plays})
    rule = rule_of(part.model_dump(mode="json"))
    return decision(plays, found, rule, rounds)[0].stop
