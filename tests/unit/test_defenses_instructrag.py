from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragassay import plugins, prompts
from ragassay.defenses.instructrag import InstructRAG, read_examples, read_reply
from ragassay.errors import ConfigError
from ragassay.testing import ScriptedTools, check_defense, make_hits, make_query

VALID = '{"rationale": "Document 2 says so.", "final_answer": "Ottawa"}'
EXAMPLES = [
    {
        "question": "Who built the mill?",
        "answers": ["Jan Roth", "J. Roth"],
        "rationale": "Document 1 names Jan Roth.",
        "ctxs": [{"title": "Mill", "text": "Jan Roth built it."}, {"text": "It burned."}],
    }
]


@pytest.mark.parametrize(
    ("text", "answer", "parse"),
    [
        (VALID, "Ottawa", "json"),
        ('{"rationale": "the set {a, b} and {\\"x\\": 1}", "final_answer": "Ottawa"}', "Ottawa",
         "json"),
        ("The capital is Ottawa.", "The capital is Ottawa.", "failed"),
        (f"```json\n{VALID}\n```\nI hope that {{helps}}.", "Ottawa", "json"),
        (f'First {{"final_answer": "Toronto"}}, no: {VALID}', "Ottawa", "json"),
        ('{"Final Answer": 1857, "rationale": []}', "1857", "json"),
        ('{"rationale": "line\nbreak", "final_answer": " Ottawa "}', "Ottawa", "json"),
        ('{"final_answer": "Ot\\u0074awa \\"O\\"", "rationale": "cut of', 'Ottawa "O"', "field"),
        ("{'rationale': 'x', \"final_answer\": Ottawa}", "Ottawa", "field"),
        ('{"rationale": "no answer"}', '{"rationale": "no answer"}', "failed"),
        ('{"final_answer": {"city": "Ottawa"}}', '{"final_answer": {"city": "Ottawa"}}', "failed"),
        ("", "", "failed"),
        ("{" * 5000, "{" * 5000, "failed"),
        ('{"a":' * 5000, '{"a":' * 5000, "failed"),
    ],
)  # fmt: skip
def test_a_reply_is_read_or_kept_whole(text: str, answer: str, parse: str) -> None:
    found = read_reply(text)
    assert (found.answer, found.parse) == (answer, parse)


def test_the_final_answer_counts_and_the_trace_keeps_the_reply() -> None:
    tools = ScriptedTools(VALID)
    hits = make_hits(["Toronto is large.", "Ottawa is the capital."])
    verdict = InstructRAG().apply(make_query(), hits, tools)
    assert verdict.answer == "Ottawa"
    assert verdict.kept == hits
    assert verdict.trace == {"raw": VALID, "parse": "json", "rationale": "Document 2 says so."}
    (call,) = tools.calls
    assert call.max_tokens == 256
    assert call.messages[-1].content == (
        "Document 1: Toronto is large.\nDocument 2: Ottawa is the capital.\n\n"
        f"Question: {make_query().text}"
    )
    assert [m.role for m in call.messages] == ["system", *["user", "assistant"] * 2, "user"]


def test_a_reply_without_an_answer_is_still_what_the_model_said() -> None:
    verdict = InstructRAG().apply(make_query(), make_hits(["x"]), ScriptedTools("It is Toronto."))
    assert verdict.answer == "It is Toronto."
    assert verdict.trace["parse"] == "failed"


def test_the_built_in_examples_follow_the_form_that_is_asked_for() -> None:
    turns = prompts.load("instructrag").turns
    replies = [text for role, text in turns if role == "assistant"]
    assert len(replies) == 2
    for reply in replies:
        assert set(json.loads(reply)) == {"rationale", "final_answer"}


def test_published_examples_take_the_place_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "demos.json"
    path.write_text(json.dumps(EXAMPLES), encoding="utf-8")
    tools = ScriptedTools(VALID)
    defense = InstructRAG(path=str(path))
    defense.apply(make_query(), make_hits(["x"]), tools)
    messages = tools.calls[0].messages
    assert [m.role for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[1].content == (
        "Document 1: Mill\nJan Roth built it.\nDocument 2: It burned.\n\n"
        "Question: Who built the mill?"
    )
    assert json.loads(messages[2].content)["final_answer"] == "Jan Roth"
    check_defense(defense, replies=VALID)


def test_the_identity_follows_the_content_of_the_examples(tmp_path: Path) -> None:
    found = plugins.find("defense", "instructrag")
    path = tmp_path / "demos.json"
    path.write_text(json.dumps(EXAMPLES), encoding="utf-8")
    first = plugins.build(found, {"path": "demos.json"}, folder=tmp_path)
    assert first.identity == InstructRAG(path=str(path)).identity
    path.write_text(json.dumps([{**EXAMPLES[0], "rationale": "Other."}]), encoding="utf-8")
    assert InstructRAG(path=str(path)).identity != InstructRAG().identity
    changed = [InstructRAG(max_tokens=9).identity, InstructRAG(path=str(path)).identity]
    assert len({InstructRAG().identity, *changed}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "no JSON"),
        ("{}", "must be a list"),
        ("[]", "must be a list"),
        ('[{"question": "q"}]', "number 1 needs question"),
        ('[{"question": "q", "answers": [], "rationale": "r", "ctxs": []}]', "number 1 needs"),
        ("[3]", "number 1 needs"),
    ],
)
def test_a_file_without_examples_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "demos.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        InstructRAG(path=str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_examples(tmp_path / "nothing.json")


def test_a_template_of_ones_own_needs_both_slots(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("@@ user\n{{question}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="documents"):
        InstructRAG(prompt=str(path))
