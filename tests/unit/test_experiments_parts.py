from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ragassay import prompts
from ragassay.config import PromptPart
from ragassay.errors import BackendError, ConfigError, KnowledgeError, PluginError
from ragassay.experiments.context import blind
from ragassay.experiments.poison import View, visible_target
from ragassay.experiments.trial import Bench, Job, run_trial
from ragassay.types import (
    Generation,
    Hit,
    Knowledge,
    Message,
    Passage,
    Query,
    Request,
    Sampling,
    Target,
    TrialSpec,
    Verdict,
)

QUERY = Query(id="q", text="Who?", group="g")
TARGET = Target(query_id="q", references=("right",), wanted=("wrong",), gold_ids=("a",))
HITS = tuple(
    Hit(passage=Passage(id=i, text=f"text {i}", title=f"title {i}"), rank=n, score=1.0 - n / 10)
    for n, i in enumerate("abc", start=1)
)


class Model:
    """Answers with the last line of the prompt that starts with ``text``."""

    def __init__(self, fail: bool = False) -> None:
        self.requests: list[Request] = []
        self.fail = fail

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        if self.fail:
            raise BackendError("no answer")
        self.requests += requests
        return [
            Generation(text=f"{len(r.messages[-1].content)}", input_tokens=7, output_tokens=2)
            for r in requests
        ]


def view(knowledge: Knowledge, model: Model | None = None) -> View:
    return View(knowledge=knowledge, question="Who?", target=TARGET, drafts=("d",),
                helper=model or Model())  # fmt: skip


def bench(model: Model, **prompt: Any) -> Bench:
    return Bench(
        model=model, embed=lambda texts: np.zeros((len(texts), 2), dtype=np.float32),
        template=prompts.load("answer"), prompt=PromptPart(**prompt), sampling=Sampling(), seed=1,
    )  # fmt: skip


def job(defense: Any) -> Job:
    spec = TrialSpec(
        protocol="p", dataset="d", query_id="q", question="Who?", attack="x", budget=1, poison="z",
        retriever="r", defense="d", defense_label="mine", prompt="p", generator="g",
        sampling=Sampling(), seed=1,
    )  # fmt: skip
    return Job(key="k", spec=spec, query=QUERY, context=HITS, owner={"b": "q", "c": "other"},
               gold=frozenset("a"), defense=defense)  # fmt: skip


class Own:
    """A defense made of a function."""

    def __init__(self, apply: Any) -> None:
        self.apply = apply


def test_an_attack_reaches_only_what_it_declares() -> None:
    blind_view = view(Knowledge(query="none"))
    with pytest.raises(KnowledgeError, match="exact question"):
        _ = blind_view.question
    with pytest.raises(KnowledgeError, match="correct answer"):
        _ = blind_view.correct_answers
    with pytest.raises(KnowledgeError, match="language model"):
        blind_view.ask_helper([[Message(role="user", content="x")]])
    assert visible_target(TARGET, Knowledge()) == Target(query_id="q", wanted=("wrong",))
    full = Knowledge(llm="helper", corpus="contents", correct_answer=True)
    assert visible_target(TARGET, full) == TARGET
    assert view(full).correct_answers == ("right",)


def test_what_an_attack_asks_is_counted() -> None:
    seen = view(Knowledge(llm="helper"))
    seen.ask_helper([[Message(role="user", content="x")]] * 3)
    assert (seen.cost.model_calls, seen.cost.input_tokens, seen.cost.output_tokens) == (3, 21, 6)


def test_ids_are_opaque_and_titles_hidden_where_the_victim_does_not_see_them() -> None:
    masked, back = blind(HITS, salt="k", titles=False)
    assert [back[h.passage.id] for h in masked] == ["a", "b", "c"]
    assert not {h.passage.id for h in masked} & {"a", "b", "c"}
    assert {h.passage.title for h in masked} == {""}
    assert blind(HITS, salt="k", titles=True)[0][0].passage.title == "title a"
    assert blind(HITS, salt="other", titles=True)[0][0].passage.id != masked[0].passage.id


def test_the_ledger_names_own_and_foreign_poison_and_what_was_kept() -> None:
    record = run_trial(job(Own(lambda q, hits, t: Verdict(kept=hits[1:]))), bench(Model()))
    assert [(e.id, e.origin, e.gold, e.kept) for e in record.context] == [
        ("a", "corpus", True, False),
        ("b", "own", False, True),
        ("c", "foreign", False, True),
    ]
    assert record.status == "done"
    assert record.usage.model_calls == 1


def test_a_back_end_that_fails_gives_a_failed_trial_without_outcome() -> None:
    record = run_trial(job(Own(lambda q, hits, t: Verdict(kept=hits))), bench(Model(fail=True)))
    assert (record.status, record.answer, record.error) == ("failed", None, "no answer")


def test_abstention_asks_the_victim_nothing() -> None:
    model = Model()
    record = run_trial(job(Own(lambda q, hits, t: Verdict(kept=(), abstain=True))), bench(model))
    assert record.declined
    assert record.answer == ""
    assert model.requests == []


def test_a_defense_that_answers_is_taken_at_its_word_and_its_calls_are_counted() -> None:
    def apply(query: Query, hits: Sequence[Hit], tools: Any) -> Verdict:
        texts = tools.ask([tools.answer_prompt(query, [hit]) for hit in hits], max_tokens=5)
        tools.encode(["a", "b"])
        return Verdict(kept=tuple(hits), answer=texts[0], suspicion={hits[0].passage.id: 0.5})

    model = Model()
    record = run_trial(job(Own(apply)), bench(model))
    assert record.usage.model_calls == 3
    assert record.usage.encoded_texts == 2
    assert {r.sampling.max_tokens for r in model.requests} == {5}
    assert record.suspicion == {"a": 0.5}


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (lambda hits: Verdict(kept=HITS), "not given"),
        (lambda hits: Verdict(kept=(hits[0], hits[0])), "twice"),
        (lambda hits: Verdict(kept=(), answer="x", abstain=True), "both answers and abstains"),
        (lambda hits: Verdict(kept=(), trace={"x": object()}), "not plain JSON"),
        (lambda hits: Verdict(kept=(), suspicion={"zz": 1.0}), "not given"),
    ],
)
def test_a_verdict_that_breaks_the_contract_is_refused(verdict: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        run_trial(job(Own(lambda q, hits, t: verdict(hits))), bench(Model()))


def test_a_fault_of_a_defense_is_not_an_outcome() -> None:
    def apply(query: Query, hits: Sequence[Hit], tools: Any) -> Verdict:
        raise KeyError("gone")

    with pytest.raises(PluginError, match="'mine' raised KeyError on question 'q'"):
        run_trial(job(Own(apply)), bench(Model()))


@pytest.mark.parametrize(
    ("order", "expected"),
    [("rank", ["a", "b", "c"]), ("reverse", ["c", "b", "a"])],
)
def test_the_order_of_the_passages_is_the_setting(order: str, expected: list[str]) -> None:
    tools = bench(Model(), order=order).tools(QUERY, "k")
    assert [hit.passage.id for hit in tools.ordered(HITS)] == expected


def test_shuffled_order_depends_on_the_query_alone_and_agrees_for_subsets() -> None:
    setting = bench(Model(), order="shuffle")
    full = [h.passage.id for h in setting.tools(QUERY, "k").ordered(HITS)]
    assert full == [h.passage.id for h in setting.tools(QUERY, "other key").ordered(HITS)]
    for left_out in HITS:
        part = [hit for hit in HITS if hit is not left_out]
        ordered = [h.passage.id for h in setting.tools(QUERY, "k").ordered(part)]
        assert ordered == [i for i in full if i != left_out.passage.id]


def test_titles_stand_before_the_text_only_where_configured() -> None:
    assert bench(Model()).tools(QUERY, "k").passage_text(HITS[0]) == "text a"
    with_titles = bench(Model(), titles=True).tools(QUERY, "k")
    assert with_titles.passage_text(HITS[0]) == "title a\ntext a"
