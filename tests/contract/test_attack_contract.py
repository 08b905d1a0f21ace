"""Every attack in the package keeps the contract: it reaches only for what it declares."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

import ragassay.attacks
from ragassay import canon, plugins
from ragassay.errors import ConfigError, KnowledgeError
from ragassay.experiments.poison import visible_target
from ragassay.experiments.view import Outcome, Reach, View
from ragassay.plugins import Attack
from ragassay.testing.toys import WORDS, ToyEncoder, ToyLM
from ragassay.types import (
    Generation,
    Hit,
    Knowledge,
    Message,
    Passage,
    PoisonSet,
    Query,
    Request,
    Target,
    ToolUsage,
)

QUESTION = "ba be bi bo bu da?"
PARAPHRASES = ("be ba bi bo", "bi bo bu da", "da bu bo bi", "ba ba bi da", "bo bi be ba")
WANTED = "Toronto"
TAIL = "Ottawa holds harbors of stone"  # words long enough to be misspelled
TARGET = Target(query_id="q1", references=("Ottawa",), wanted=(WANTED,), gold_ids=("d1",))
DRAFTS = tuple(f"Number {n} says that the capital is {WANTED}." for n in range(5))
SMALL = {  # options that make a search short; an attack gets those that it has
    "n": 2, "iterations": 2, "steps": 2, "candidates": 4, "trials": 2, "queries": 6, "batch": 2,
    "length": 3, "trigger_length": 3, "width": 2, "beams": 1, "population": 4, "generations": 2,
    "tokens": 4, "n_grad": 2, "k_cand": 8, "n_cand": 4, "n_flip": 2, "top_k": 4, "max_steps": 2,
    "source": "released", "time_limit": 20,
    "oracle": "hashing",
}  # fmt: skip


class Helper:
    """A language model that always says the same."""

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        text = f"The capital is {WANTED}."
        return [Generation(text=text, input_tokens=5, output_tokens=4) for _ in requests]


@dataclass
class ToySystem:
    """A system without torch: the toy encoder ranks, the victim repeats the first passage."""

    opened_encoder: ToyEncoder = field(default_factory=lambda: ToyEncoder(special=True))
    opened_model: ToyLM = field(default_factory=ToyLM)

    def corpus(self) -> list[Passage]:
        return [
            Passage(
                id=f"d{n}",
                title=f"title {n}",
                text=" ".join(WORDS[n : n + 6]) + " Ottawa holds harbors of stone",
            )
            for n in range(8)
        ]

    def hits(self, query: Query, k: int | None, standing: Sequence[Passage]) -> tuple[Hit, ...]:
        passages = [*self.corpus(), *standing]
        scores = self.scores(query, [passage.text for passage in passages])
        order = np.argsort(-scores, kind="stable")[: k or 5]
        return tuple(
            Hit(passage=passages[i], rank=rank, score=float(scores[i]))
            for rank, i in enumerate(order.tolist(), start=1)
        )

    def scores(self, query: Query, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        toy = ToyEncoder(special=True)
        question = toy.embed([query.text], kind="query")[0]
        return (toy.embed(texts) @ question).astype(np.float64)

    def answer(self, query: Query, poison: Sequence[Passage], against: str) -> Outcome:
        hits = self.hits(query, 5, poison)
        ids = frozenset(hit.passage.id for hit in hits)
        return Outcome(text=hits[0].passage.text, retrieved=ids, kept=ids,
                       usage=ToolUsage(model_calls=1, input_tokens=9, output_tokens=2))  # fmt: skip

    def encoder(self) -> ToyEncoder:
        return self.opened_encoder

    def language_model(self) -> ToyLM:
        return self.opened_model


def make_view(knowledge: Knowledge, *, budget: int = 2, against: str = "") -> View:
    return View(
        knowledge=knowledge, question=QUESTION, target=TARGET, drafts=DRAFTS, helper=Helper(),
        reach=Reach(system=ToySystem(), group="g", paraphrases=PARAPHRASES, budget=budget,
                    against=against),
    )  # fmt: skip


def attack_classes() -> dict[str, type]:
    """All attacks of the package, registered or not, and all registered ones."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(ragassay.attacks.__path__):
        loaded = importlib.import_module(f"ragassay.attacks.{module.name}")
        for name, cls in inspect.getmembers(loaded, inspect.isclass):
            own = cls.__module__ == loaded.__name__ and not name.startswith("_")
            if own and hasattr(cls, "craft") and hasattr(cls, "knowledge"):
                found[name] = cls
    return found


PLAYED = {"PoisonFile", "Released"}  # their texts are files: see the unit tests
CLASSES = {name: cls for name, cls in attack_classes().items() if name not in PLAYED}


def build(cls: type) -> Attack:
    """The attack with short searches; an option that it refuses at that size keeps its default."""
    assert is_dataclass(cls)
    names = {f.name for f in fields(cls) if f.init}
    options: dict[str, Any] = {}
    for name in names & SMALL.keys():
        try:
            cls(**options, **{name: SMALL[name]})
        except (ConfigError, TypeError, ValueError):
            continue
        options[name] = SMALL[name]
    built: Attack = cls(**options)
    return built


def craft(attack: Attack, view: View) -> PoisonSet:
    target = visible_target(TARGET, attack.knowledge)
    return attack.craft(target, view, np.random.default_rng(3))


def test_the_package_holds_attacks_and_every_registered_one_is_known() -> None:
    assert {"PoisonedRAG", "CorruptRAGAS"} <= CLASSES.keys()
    assert {"poisonedrag", "corruptrag_as"} <= set(plugins.names("attack"))
    registered = {plugins.find("attack", name).cls for name in plugins.names("attack")}
    assert set(attack_classes().values()) <= registered


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_an_attack_lives_on_what_it_declares_and_keeps_its_budget(name: str) -> None:
    attack = build(CLASSES[name])
    poison = craft(attack, make_view(attack.knowledge))
    assert poison.query_id == "q1"
    assert poison.knowledge == attack.knowledge
    assert poison.passages
    assert len({passage.id for passage in poison.passages}) == len(poison.passages)
    assert all(passage.text.strip() for passage in poison.passages)
    assert len(poison.details) in (0, len(poison.passages))
    canon.dumps(poison)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_equal_seeds_give_equal_poison(name: str) -> None:
    attack = build(CLASSES[name])
    one, two = (craft(attack, make_view(attack.knowledge)) for _ in range(2))
    assert one.passages == two.passages
    assert canon.dumps(one.details) == canon.dumps(two.details)


# ------------------------------------------------ a probe for each access, which declares less


def chat() -> list[list[Message]]:
    return [[Message(role="user", content="hello")]]


ACCESSES: dict[str, tuple[Knowledge, Knowledge, Callable[[View], Any]]] = {
    "question": (
        Knowledge(query="exact"), Knowledge(query="paraphrases"), lambda v: v.question),
    "question of nobody": (
        Knowledge(query="exact"), Knowledge(query="none"), lambda v: v.question),
    "paraphrases": (
        Knowledge(query="paraphrases"), Knowledge(query="none"), lambda v: v.paraphrases),
    "correct_answers": (
        Knowledge(correct_answer=True), Knowledge(), lambda v: v.correct_answers),
    "ask_helper": (
        Knowledge(llm="helper"), Knowledge(llm="none"), lambda v: v.ask_helper(chat())),
    "ask_victim": (
        Knowledge(llm="query"), Knowledge(llm="helper"), lambda v: v.ask_victim(["x"])),
    "ask_victim without the question": (
        Knowledge(llm="query"), Knowledge(llm="query", query="paraphrases"),
        lambda v: v.ask_victim(["x"])),
    "language_model": (
        Knowledge(llm="internals"), Knowledge(llm="query"), lambda v: v.language_model),
    "similarity": (
        Knowledge(retriever="query"), Knowledge(retriever="none"), lambda v: v.similarity(["x"])),
    "similarity without a question": (
        Knowledge(retriever="query"), Knowledge(retriever="query", query="none"),
        lambda v: v.similarity(["x"])),
    "encoder": (
        Knowledge(retriever="gradients"), Knowledge(retriever="query"), lambda v: v.encoder),
    "retrieved": (
        Knowledge(corpus="partial"), Knowledge(corpus="none"), lambda v: v.retrieved()),
    "retrieved without a question": (
        Knowledge(corpus="partial"), Knowledge(corpus="partial", query="none"),
        lambda v: v.retrieved()),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Probe:
    """An attack that reaches for one thing."""

    knowledge: Knowledge
    reach: Callable[[View], Any]

    def craft(self, target: Target, view: Any, rng: np.random.Generator) -> PoisonSet:
        self.reach(view)
        return PoisonSet(attack="probe", query_id=target.query_id, knowledge=self.knowledge,
                         passages=(Passage(id="p", text="x"),))  # fmt: skip


@pytest.mark.parametrize("access", ACCESSES)
def test_a_probe_that_declares_an_access_gets_it(access: str) -> None:
    enough, _, reach = ACCESSES[access]
    assert craft(Probe(knowledge=enough, reach=reach), make_view(enough)).passages


@pytest.mark.parametrize("access", ACCESSES)
def test_a_probe_that_declares_less_is_refused_and_told_what_it_lacks(access: str) -> None:
    _, less, reach = ACCESSES[access]
    with pytest.raises(KnowledgeError, match="but declares"):
        craft(Probe(knowledge=less, reach=reach), make_view(less))


@pytest.mark.parametrize("access", ACCESSES)
def test_more_knowledge_never_takes_an_access_away(access: str) -> None:
    everything = Knowledge(
        llm="internals", retriever="gradients", corpus="contents", query="exact",
        correct_answer=True,
    )  # fmt: skip
    reach = ACCESSES[access][2]
    assert craft(Probe(knowledge=everything, reach=reach), make_view(everything)).passages


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_an_attack_with_less_than_it_uses_fails(name: str) -> None:
    """Whatever an attack is seen to use, it is refused once its declaration lacks that."""
    attack = build(CLASSES[name])
    lowered = {
        "llm": "none", "retriever": "none", "corpus": "none", "query": "none",
        "correct_answer": False,
    }  # fmt: skip
    used = Recorder(make_view(attack.knowledge))
    craft(attack, used)  # type: ignore[arg-type]
    needs = {
        "llm": {"ask_helper", "ask_victim", "language_model"},
        "retriever": {"similarity", "encoder"},
        "corpus": {"retrieved"},
        "query": {"question", "paraphrases"},
        "correct_answer": {"correct_answers"},
    }
    checked = 0
    for name_of_field, accesses in needs.items():
        if not accesses & used.seen:
            continue
        less = replace(attack.knowledge, **{name_of_field: lowered[name_of_field]})
        with pytest.raises(KnowledgeError):
            craft(attack, make_view(less))
        checked += 1
    assert checked


class Recorder:
    """Passes everything on and notes what was reached for."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self._view, name)


# ----------------------------------------------------------------- what an access shows


def test_ids_and_scores_alone_are_shown_of_a_corpus_that_is_partly_known() -> None:
    partial = make_view(Knowledge(corpus="partial")).retrieved(3)
    whole = make_view(Knowledge(corpus="contents")).retrieved(3)
    assert [(h.passage.id, h.rank, h.score) for h in partial] == [
        (h.passage.id, h.rank, h.score) for h in whole
    ]
    assert {(h.passage.text, h.passage.title) for h in partial} == {("", "")}
    assert all(h.passage.text and h.passage.title for h in whole)


def test_several_paraphrases_share_one_ranking_with_each_passage_at_its_best() -> None:
    view = make_view(Knowledge(corpus="contents", query="paraphrases"))
    hits = view.retrieved(3)
    system = ToySystem()
    best: dict[str, float] = {}
    for text in PARAPHRASES:
        for hit in system.hits(Query(id="q1", text=text, group="g"), 3, ()):
            best[hit.passage.id] = max(best.get(hit.passage.id, -np.inf), hit.score)
    expected = sorted(best, key=lambda i: (-best[i], i))[:3]
    assert [h.passage.id for h in hits] == expected
    assert [h.rank for h in hits] == [1, 2, 3]


def test_similarity_is_the_mean_over_what_is_known_of_the_question() -> None:
    system = ToySystem()
    exact = make_view(Knowledge(retriever="query")).similarity(["ba be", "da"])
    assert exact == pytest.approx(
        system.scores(Query(id="q1", text=QUESTION, group="g"), ["ba be", "da"])
    )
    several = make_view(Knowledge(retriever="query", query="paraphrases")).similarity(["ba be"])
    mean = np.mean(
        [system.scores(Query(id="q", text=t, group="g"), ["ba be"])[0] for t in PARAPHRASES]
    )
    assert several == pytest.approx([mean])
    assert make_view(Knowledge(retriever="query")).similarity([]).shape == (0,)


def test_drafts_and_budgets_need_no_declaration() -> None:
    view = make_view(Knowledge(query="none"), budget=4)
    assert (view.drafts, view.budget, view.max_words) == (DRAFTS, 4, None)


def test_the_victim_says_which_passages_were_retrieved_and_a_defense_which_were_kept() -> None:
    view = make_view(Knowledge(llm="query"))
    near = QUESTION * 3
    answer = view.ask_victim([near, "far away " * 9])
    assert answer.retrieved[0] is True
    assert answer.kept is None
    defended = make_view(Knowledge(llm="query"), against="some defense").ask_victim([near])
    assert defended.kept == (True,)


def test_every_use_is_counted() -> None:
    everything = Knowledge(llm="internals", retriever="gradients", corpus="contents")
    view = make_view(everything)
    view.ask_helper(chat() * 2)
    view.ask_victim(["x", "y"])
    view.similarity(["a", "b", "c"])
    view.encoder.embed(["a", "b"])
    view.encoder.gradient((0, 1), np.ones(8, dtype=np.float32))
    view.language_model.next_logits([(0,), (1,)])
    view.language_model.loss_gradient((0, 1, 2), [0], slice(1, 3))
    cost = view.cost
    assert cost.model_calls == 2 + 1
    assert (cost.model_forwards, cost.model_backwards) == (2 + 1, 1)
    assert cost.gpu_seconds == 0
    assert (cost.input_tokens, cost.output_tokens) == (2 * 5 + 9, 2 * 4 + 2)
    assert cost.encoder_forwards == 2 + 3 + 2 + 1
    assert cost.encoder_backwards == 1


def test_what_an_opened_model_did_before_is_not_counted_again() -> None:
    system = ToySystem()
    system.opened_encoder.embed(["before"] * 7)
    view = View(
        knowledge=Knowledge(retriever="gradients"), question=QUESTION, target=TARGET, drafts=(),
        helper=Helper(), reach=Reach(system=system),
    )  # fmt: skip
    view.encoder.embed(["now"])
    assert view.cost.encoder_forwards == 1


def test_an_attack_on_paraphrases_needs_some() -> None:
    view = View(knowledge=Knowledge(query="paraphrases"), question=QUESTION, target=TARGET,
                drafts=(), helper=Helper())  # fmt: skip
    with pytest.raises(ConfigError, match="add \\[paraphrases\\]"):
        _ = view.paraphrases
    exact = View(knowledge=Knowledge(), question=QUESTION, target=TARGET, drafts=(),
                 helper=Helper())  # fmt: skip
    assert exact.paraphrases == ()
