from __future__ import annotations

from pathlib import Path

import pytest

from ragassay import prompts
from ragassay.defenses.none import NoDefense
from ragassay.defenses.prompt_control import CautiousPrompt, KeywordOnlyPrompt, first_line
from ragassay.errors import ConfigError
from ragassay.testing import ScriptedTools, make_hits, make_query

HITS = make_hits(["First passage.", "Second passage."])
OWN = ["cautious", "keyword_answer", "keyword_aggregate"]
OWN += ["trustrag_internal", "trustrag_consolidate", "trustrag_final"]


def test_no_defense_keeps_everything_and_asks_nothing():
    tools = ScriptedTools()
    verdict = NoDefense().apply(make_query(), HITS, tools)
    assert verdict.kept == HITS
    assert verdict.answer is None
    assert not verdict.abstain
    assert tools.calls == []


def test_cautious_prompt_asks_once_in_the_experiments_order():
    tools = ScriptedTools("  Ottawa\nbecause ", order="reverse")
    verdict = CautiousPrompt(max_tokens=150).apply(make_query(), HITS, tools)
    (call,) = tools.calls
    assert "Second passage.\nFirst passage." in call.messages[-1].content
    assert make_query().text in call.messages[-1].content
    assert call.max_tokens == 150
    assert verdict.answer == "  Ottawa\nbecause "
    assert verdict.kept == HITS


def test_keyword_only_answer_is_the_first_line_and_the_raw_output_stays_in_the_trace():
    raw = "\n Ottawa \n\nContext: more"
    verdict = KeywordOnlyPrompt().apply(make_query(), HITS, ScriptedTools(raw))
    assert verdict.answer == "Ottawa"
    assert verdict.trace == {"raw": raw}


def test_keyword_prompt_has_four_examples_one_of_which_abstains_exactly():
    template = prompts.load("keyword_answer")
    replies = [text for role, text in template.turns if role == "assistant"]
    assert len(replies) == 4
    assert replies.count("I don't know") == 1
    words = sum(len(text.split()) for _, text in template.turns[1:-1])
    assert words < 220


@pytest.mark.parametrize("name", OWN)
def test_only_the_last_turn_changes_with_the_query(name: str):
    template = prompts.load(name)
    values = dict.fromkeys(template.slots, "a")
    others = dict.fromkeys(template.slots, "b")
    assert template.turns[-1][0] == "user"
    assert template.render(values)[:-1] == template.render(others)[:-1]
    assert template.render(values)[-1] != template.render(others)[-1]


@pytest.mark.parametrize("defense", [CautiousPrompt, KeywordOnlyPrompt])
def test_a_prompt_with_wrong_slots_is_refused(defense: type, tmp_path: Path):
    file = tmp_path / "mine.txt"
    file.write_text("@@ user\n{{question}} {{documents}}", encoding="utf-8")
    with pytest.raises(ConfigError, match="needs exactly"):
        defense(prompt=str(file))
    with pytest.raises(ConfigError, match="no prompt"):
        defense(prompt="absent")
    with pytest.raises(ConfigError, match="max_tokens >= 1, got 0"):
        defense(max_tokens=0)


@pytest.mark.parametrize(
    ("text", "line"), [("", ""), (" \n ", ""), ("a\rb", "a"), ("\n\na b", "a b")]
)
def test_first_line(text: str, line: str):
    assert first_line(text) == line
