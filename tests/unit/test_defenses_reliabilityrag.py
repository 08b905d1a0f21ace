from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ragassay.defenses.contradiction import (
    contradictions,
    relation_probability,
    says_nothing,
)
from ragassay.defenses.independent_set import max_independent_set
from ragassay.defenses.reliabilityrag import ReliabilityRAG
from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.testing import ScriptedTools, make_hits, make_query
from ragassay.types import Message

ANSWERS = {"one": "Ottawa", "two": "Toronto", "three": "Ottawa.", "four": "I don’t know.",
           "five": "Ottawa city"}  # fmt: skip


def reply(messages: tuple[Message, ...]) -> str:
    last = messages[-1].content
    if "Relation:" not in last:
        return next(answer for word, answer in ANSWERS.items() if f"Passage {word}" in last)
    first, second = last.split("Second statement")
    return "contradiction" if ("Toronto" in first) != ("Toronto" in second) else "Entailment."


def hits_of(*words: str):
    return make_hits([f"Passage {word}" for word in words])


# ----------------------------------------------------------------------------- independent set


def brute_force(n: int, edges: Sequence[Sequence[int]]) -> list[int]:
    for size in range(n, -1, -1):
        for subset in itertools.combinations(range(n), size):  # in lexicographic order
            if not any(i in subset and j in subset for i, j in edges):
                return list(subset)
    raise AssertionError


@st.composite
def graphs(draw):
    n = draw(st.integers(0, 9))
    pairs = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    edges = [pair for pair, on in zip(pairs, chosen, strict=True) if on]
    return n, [edge[:: draw(st.sampled_from([1, -1]))] for edge in edges]


@given(graphs())
def test_the_set_is_the_first_of_the_largest(graph):
    assert max_independent_set(*graph) == brute_force(*graph)


def test_forty_vertices_are_solved_exactly():
    edges = [(i, (i + 1) % 40) for i in range(40)] + [(i, i + 20) for i in range(20)]
    found = max_independent_set(40, edges)
    assert not any(i in found and j in found for i, j in edges)
    assert len(found) == 19  # two rungs of the ladder with a twist: an odd cycle costs one


@pytest.mark.parametrize("edge", [(0, 0), (0, 3), (-1, 1)])
def test_an_edge_that_cannot_be_is_refused(edge):
    with pytest.raises(ValueError, match="between two different ones of 3 vertices"):
        max_independent_set(3, [edge])


# -------------------------------------------------------------------------------- contradictions


def test_answers_that_say_nothing_are_no_vertices():
    assert [says_nothing(a) for a in ("I don't know.", "I don’t know", " ", "Ottawa")] == [
        True, True, True, False
    ]  # fmt: skip
    tools = ScriptedTools(reply)
    found = contradictions("Q?", ["Ottawa", "", "Toronto", "I don't know"], tools)
    assert found.vertices == (0, 2)
    assert found.edges == ((0, 2),)
    assert found.degree_share(0) == 1.0
    assert found.degree_share(1) is None


def test_equal_answers_are_not_compared_and_each_pair_is_asked_once():
    tools = ScriptedTools(reply)
    found = contradictions("Q?", ["Ottawa", "ottawa.", "Toronto", "Toronto"], tools)
    assert found.edges == ((0, 2), (0, 3), (1, 2), (1, 3))
    assert len(tools.calls) == 2  # Ottawa and ottawa. against Toronto


def test_the_better_rank_is_the_premise_and_symmetric_asks_both_ways():
    def one_way(messages):
        first = messages[-1].content.split("Second statement")[0]
        return "contradiction" if "Toronto" in first else "neutral"

    answers = ["Ottawa", "Toronto"]
    assert contradictions("Q?", answers, ScriptedTools(one_way)).edges == ()
    tools = ScriptedTools(one_way)
    both = contradictions("Q?", answers, tools, symmetric=True)
    assert both.edges == ((0, 1),)
    assert both.probabilities == ((0, 1, 1.0),)
    assert len(tools.calls) == 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [("Contradiction", 1.0), ("They contradict.", 1.0), (" entailment", 0.0), ("NEUTRAL", 0.0),
     ("yes", None), ("", None)],
)  # fmt: skip
def test_replies_are_read_or_left_open(said: str, expected: float | None):
    assert relation_probability(said) == expected


def test_an_answer_is_cut_to_its_first_line_and_a_bounded_length():
    tools = ScriptedTools("neutral")
    contradictions("Q?", ["x" * 5000, "Toronto\nRelation: neutral"], tools)
    (call,) = tools.calls
    assert len(call.messages[-1].content) < 700
    assert call.messages[-1].content.count("Relation:") == 1


# ------------------------------------------------------------------------------ the defense


def test_the_largest_consistent_set_is_kept_and_degrees_are_suspicions():
    hits = hits_of("one", "two", "three", "four", "five")
    verdict = ReliabilityRAG().apply(make_query(), hits, ScriptedTools(reply))
    assert [hit.rank for hit in verdict.kept] == [1, 3, 5]
    assert verdict.answer is None
    degrees = [verdict.suspicion.get(hit.passage.id) for hit in hits]
    assert degrees == [pytest.approx(1 / 3), 1.0, pytest.approx(1 / 3), None, pytest.approx(1 / 3)]
    assert verdict.trace["fallback"] is False


def test_a_tie_goes_to_the_better_rank_and_a_poisoned_majority_wins():
    tie = ReliabilityRAG().apply(make_query(), hits_of("two", "one"), ScriptedTools(reply))
    assert [hit.rank for hit in tie.kept] == [1]
    hits = hits_of("one", "two", "two")
    verdict = ReliabilityRAG().apply(make_query(), hits, ScriptedTools(reply))
    assert [hit.rank for hit in verdict.kept] == [2, 3]


def test_without_any_answer_all_passages_are_kept():
    hits = hits_of("four", "four")
    verdict = ReliabilityRAG().apply(make_query(), hits, ScriptedTools(reply))
    assert verdict.kept == hits
    assert verdict.suspicion == {}
    assert verdict.trace["fallback"] is True


def test_unread_replies_are_counted_and_no_edges():
    tools = ScriptedTools({"Relation:": "hm", "Passage one": "Ottawa", "": "Toronto"})
    verdict = ReliabilityRAG().apply(make_query(), hits_of("one", "two"), tools)
    assert len(verdict.kept) == 2
    assert verdict.trace["unread"] == 1


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_no_more_calls_than_announced(k: int, symmetric: bool):
    answers = iter(f"answer {i}" for i in range(99))
    tools = ScriptedTools(lambda m: "neutral" if "Relation:" in m[-1].content else next(answers))
    defense = ReliabilityRAG(symmetric=symmetric)
    defense.apply(make_query(), make_hits([f"t{i}" for i in range(k)]), tools)
    assert len(tools.calls) + 1 == defense.model_calls(k)


def test_large_contexts_are_sampled_with_weight_on_good_ranks():
    seen = np.zeros(30)
    defense = ReliabilityRAG(rounds=40, sample_size=4, gamma=0.8)
    for seed in range(10):
        tools = ScriptedTools("Ottawa", seed=seed)
        verdict = defense.apply(make_query(), make_hits([f"t{i}" for i in range(30)]), tools)
        groups = verdict.trace["groups"]
        assert groups == sorted(groups)
        assert all(len(set(group)) == 4 for group in groups)
        assert {rank for group in groups for rank in group} == {h.rank for h in verdict.kept}
        assert verdict.suspicion == {}
        for group in groups:
            seen[[rank - 1 for rank in group]] += 1
    assert seen[:5].sum() > 2 * seen[5:10].sum() > 2 * seen[10:15].sum()
    assert defense.model_calls(30) == 40 + 40 * 39 // 2 + 1


def test_sampled_contexts_that_contradict_the_majority_are_left_out():
    def answer(messages):
        last = messages[-1].content
        if "Relation:" in last:
            first, second = last.split("Second statement")
            return "contradiction" if ("Toronto" in first) != ("Toronto" in second) else "neutral"
        return "Toronto" if "poison" in last else "Ottawa"

    texts = ["poison"] + ["clean"] * 29
    defense = ReliabilityRAG(gamma=1.0, sample_size=2)
    verdict = defense.apply(make_query(), make_hits(texts), ScriptedTools(answer))
    assert verdict.kept
    assert "poison" not in {hit.passage.text for hit in verdict.kept}


@pytest.mark.parametrize(
    "options",
    [{"nli": ""}, {"threshold": 0.0}, {"gamma": 1.1}, {"rounds": 0}, {"exact_limit": 41},
     {"sample_size": 0}, {"max_tokens": 0}, {"prompt": "answer"}],
)  # fmt: skip
def test_options_out_of_range_are_refused(options: dict):
    with pytest.raises(ConfigError):
        ReliabilityRAG(**options)


# -------------------------------------------------------------------- a cross-encoder by name


def tiny_model(folder: Path, labels: list[str]) -> str:
    """An untrained classifier with a vocabulary of its own, as one would download it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "answer", "ottawa", "toronto"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
def test_a_cross_encoder_gives_the_probability_of_its_class_for_contradiction(tmp_path: Path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    name = tiny_model(tmp_path, ["entailment", "neutral", "contradiction"])
    tools = ScriptedTools()
    found = contradictions("Q?", ["Ottawa", "Toronto"], tools, nli=name, threshold=1e-9)
    assert tools.calls == []
    model = AutoModelForSequenceClassification.from_pretrained(name).eval()
    told = [f'The answer to the question "Q?" is: {a}' for a in ("Ottawa", "Toronto")]
    with torch.no_grad():
        inputs = AutoTokenizer.from_pretrained(name)(*told, return_tensors="pt")
        expected = torch.softmax(model(**inputs).logits, dim=1)[0, 2].item()
    assert found.probabilities == ((0, 1, pytest.approx(expected, abs=1e-5)),)
    assert found.edges == ((0, 1),)
    json.dumps(found.probabilities)


@pytest.mark.slow
def test_a_model_that_cannot_judge_is_refused_with_its_classes(tmp_path: Path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    name = tiny_model(tmp_path, ["good", "bad"])
    with pytest.raises(BackendUnavailable, match=r"\['bad', 'good'\]"):
        contradictions("Q?", ["Ottawa", "Toronto"], ScriptedTools(), nli=name)
    with pytest.raises(BackendUnavailable, match="cannot be loaded"):
        contradictions("Q?", ["a", "b"], ScriptedTools(), nli=str(tmp_path / "absent"))
