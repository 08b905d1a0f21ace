from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ragassay.defenses.robustrag_decoding import (
    ABSTENTION,
    RobustRAGDecoding,
    probabilities,
    secure_token,
)
from ragassay.errors import BackendUnavailable, ConfigError
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query
from ragassay.testing.toys import ToyLM

WORDS = ("<end>", "north", "south", "east", "I", "/n", "Please", "don't", "know", "\n\n")
Table = dict[str, dict[str, float]]


class Scripted(ToyLM):
    """A model of ten words whose next word depends on the passage that its prompt holds.

    ``tables`` maps a passage to probabilities by the words written so far, joined by spaces; a
    prompt without a passage has the key ``""``. What is not listed ends the answer.
    """

    def __init__(self, tables: dict[str, Table]) -> None:
        super().__init__()
        self.vocabulary, self.begin = len(WORDS), 0
        self.tables = tables
        self.keys = list(tables)
        self.asked: list[Any] = []

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(WORDS.index(word) for word in text.split())

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(WORDS[i] for i in ids if i)

    def chat_ids(self, messages: Any) -> tuple[int, ...]:
        text = messages[-1].content
        key = next((k for k in self.keys if k and k in text), "")
        return (1000 + self.keys.index(key),)

    def next_logits(self, sequences: Any) -> Any:
        rows = np.full((len(sequences), self.vocabulary), -50.0)
        for row, ids in zip(rows, sequences, strict=True):
            table = self.tables[self.keys[ids[0] - 1000]]
            for word, p in table.get(self.decode(ids[1:]), {"<end>": 1.0}).items():
                row[WORDS.index(word)] = np.log(p)
        return rows.astype(np.float32)

    def logprobs(self, pairs: Any) -> Any:
        self.asked += pairs
        found = []
        for prefix, rest in pairs:
            rows = [self.next_logits([(*prefix, *rest[:i])])[0] for i in range(len(rest))]
            logs = [
                np.log(probabilities(row[None])[0, t]) for row, t in zip(rows, rest, strict=True)
            ]
            found.append(np.array(logs, dtype=np.float32))
        return found


def answer(tables: dict[str, Table], **options: Any) -> tuple[str | None, Any, Scripted]:
    model = Scripted(tables)
    tools = ScriptedTools(language_model=model)
    hits = make_hits([key for key in tables if key])
    verdict = RobustRAGDecoding(**options).apply(make_query(), hits, tools)
    assert verdict.kept == hits
    assert not tools.calls
    return verdict.answer, verdict.trace, model


TWO: dict[str, Table] = {
    "first": {"": {"north": 0.9, "south": 0.1}},
    "second": {"": {"north": 0.8, "south": 0.2}},
    "": {"": {"east": 1.0}},
}


def test_the_joined_probabilities_decide_if_they_lead_by_enough() -> None:
    text, trace, _ = answer(TWO, compat="released", eta=1.0)
    assert text == "north"
    assert trace["steps"][0] == {"gap": pytest.approx(1.4, abs=1e-5), "voted": True}
    assert answer(TWO, compat="released", eta=1.5)[0] == "east"


def test_means_lead_by_a_share_whatever_the_number_of_passages() -> None:
    text, trace, _ = answer(TWO, eta=0.69)
    assert text == "north"
    assert trace["steps"][0]["gap"] == pytest.approx(0.7, abs=1e-5)
    assert answer(TWO, eta=0.71)[0] == "east"


def test_one_passage_cannot_outvote_two() -> None:
    tables: dict[str, Table] = {
        "one#": {"": {"south": 1.0}},
        "two#": {"": {"north": 0.8, "south": 0.2}},
        "three#": {"": {"north": 0.9, "south": 0.1}},
        "": {},
    }
    assert answer(tables)[0] == "north"


def test_all_branches_go_on_with_the_token_that_was_chosen() -> None:
    tables: dict[str, Table] = {
        "first": {"": {"north": 1.0}, "east": {"south": 1.0}},
        "second": {"": {"south": 1.0}, "east": {"south": 1.0}},
        "": {"": {"east": 1.0}},
    }
    text, trace, _ = answer(tables)  # a tie, so the model without passages decides
    assert text == "east south"
    assert [step["voted"] for step in trace["steps"]] == [False, True, True]


SILENT: Table = {
    "": {"I": 0.995, "north": 0.005},
    "I": {"don't": 0.999, "north": 0.001},
    "I don't": {"know": 0.999, "north": 0.001},
}


def test_a_passage_from_which_the_model_abstains_has_no_vote() -> None:
    tables = {"first": SILENT, "second": {"": {"south": 0.9, "I": 0.1}}, "": {}}
    text, trace, model = answer(tables)
    assert text == "south"
    assert trace["votes"] == 1
    assert trace["abstention"] == [pytest.approx(0.995 * 0.999**2, abs=1e-5), 0.1]
    # the other passage's first word already rules an abstention out
    assert model.asked == [(model.chat_ids([Prompt("first")]), model.tokenize(ABSTENTION))]
    assert answer(tables, abstention_threshold=1.0)[1]["votes"] == 2


class Prompt:
    def __init__(self, content: str) -> None:
        self.content = content


def test_without_a_vote_the_answer_is_an_abstention() -> None:
    text, trace, _ = answer({"first": SILENT, "": {"": {"east": 1.0}}})
    assert text == "I don't know."
    assert (trace["votes"], trace["steps"]) == (0, [])
    none = RobustRAGDecoding().apply(make_query(), (), ScriptedTools())
    assert (none.answer, none.kept) == ("I don't know.", ())


def test_the_released_code_bars_three_tokens_from_the_first_place_only() -> None:
    tables: dict[str, Table] = {
        "first": {
            "": {"I": 0.5, "/n": 0.2, "Please": 0.2, "north": 0.1},
            "north": {"I": 1.0},
        },
        "": {"": {"east": 1.0}},
    }
    assert answer(tables, compat="released")[0] == "north I"
    assert answer(tables)[0] == "I"


def test_an_answer_ends_at_its_limit_or_at_an_empty_line() -> None:
    endless: dict[str, Table] = {
        "first": {" ".join(["north"] * n): {"north": 1.0} for n in range(99)},
        "": {},
    }
    text, trace, _ = answer(endless, max_tokens=7)
    assert text == " ".join(["north"] * 7)
    assert len(trace["steps"]) == 7
    broken: dict[str, Table] = {
        "first": {"": {"north": 1.0}, "north": {"\n\n": 1.0}, "north \n\n": {"south": 1.0}},
        "": {},
    }
    words = list(WORDS)
    assert words[-1] == "\n\n"
    assert answer(broken)[0] == "north \n\n"


def test_of_equal_tokens_none_leads() -> None:
    assert secure_token([0.5, 0.5], alone=1, eta=0.0) == (1, 0.0)


def test_it_asks_for_the_victims_prompt_with_each_passage_and_with_none() -> None:
    seen: list[str] = []

    class Listening(ToyLM):
        def chat_ids(self, messages: Any) -> Any:
            seen.append(messages[-1].content)
            return super().chat_ids(messages)

    tools = ScriptedTools(language_model=Listening())
    hits = make_hits(["ba be", "di do"])
    RobustRAGDecoding(max_tokens=2).apply(make_query(), hits, tools)
    assert seen == [
        tools.answer_prompt(make_query(), shown)[-1].content for shown in ([hits[0]], [hits[1]], [])
    ]


def test_a_model_that_fails_fails_the_trial() -> None:
    class Failing(ToyLM):
        @contextmanager
        def branches(self, prefixes: Any) -> Iterator[Any]:
            raise BackendUnavailable("gone")
            yield

    tools = ScriptedTools(language_model=Failing())
    with pytest.raises(BackendUnavailable):
        RobustRAGDecoding().apply(make_query(), make_hits(["x"]), tools)


@pytest.mark.parametrize(
    "wrong",
    [{"eta": -0.1}, {"eta": 1.1}, {"abstention_threshold": 0.0}, {"max_tokens": 0},
     {"eta": float("nan")}],
)  # fmt: skip
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"eta"):
        RobustRAGDecoding(**wrong)


@pytest.mark.parametrize("compat", ["paper", "released"])
def test_secure_decoding_keeps_the_contract(compat: Any) -> None:
    check_defense(RobustRAGDecoding(compat=compat, max_tokens=4))
    assert RobustRAGDecoding().model_calls(5) == 11
