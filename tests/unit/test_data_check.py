"""What ``ragassay data check`` finds, each by the smallest data set that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ragassay.data.check import check, has_mojibake, tokens
from ragassay.types import Dataset, Passage, Query, Target


def data(
    *,
    corpus: tuple[str, ...] = ("Rome is old.",),
    questions: tuple[str, ...] = ("Where was it?",),
    target: Mapping[str, Any] | None = None,
    drafts: tuple[str, ...] | dict[str, tuple[str, ...]] = ("Surely Oslo, they say.",),
    **more: Any,
) -> Dataset:
    answers = {"references": ("Rome",), "wanted": ("Oslo",), "gold_ids": ("d0",)} | dict(
        target or {}
    )
    targets = {f"q{n}": Target(query_id=f"q{n}") for n in range(len(questions))}
    targets["q0"] = Target(query_id="q0", **answers)
    values: dict[str, Any] = {
        "name": "x",
        "fingerprint": "0",
        "corpus": tuple(Passage(id=f"d{n}", text=text) for n, text in enumerate(corpus)),
        "queries": tuple(Query(id=f"q{n}", text=t, group="g") for n, t in enumerate(questions)),
        "targets": targets,
        "drafts": drafts if isinstance(drafts, dict) else {"q0": drafts},
        "has_qrels": True,
    }
    return Dataset(**(values | more))


def found(dataset: Dataset, severity: str) -> list[str]:
    return [f"{f.where}: {f.message}" for f in check(dataset) if f.severity == severity]


def test_a_sound_data_set_gives_counts_only() -> None:
    assert found(data(), "error") == found(data(), "warning") == []
    assert found(data(), "note") == [
        "corpus: 1 passages",
        "queries: 1 questions, 1 with a target in 1 injection groups",
        "drafts: 1 texts for 1 questions",
        "qrels: 1 gold passages",
    ]


@pytest.mark.parametrize(
    ("parts", "severity", "message"),
    [
        ({"corpus": ("a", " ")}, "warning", "corpus: 1 passages have no text: d1"),
        (
            {"corpus": ("A b", "a  B")},
            "warning",
            "corpus: 1 passages repeat the text of another one: d1",
        ),
        (
            {"corpus": ("w " * 513,)},
            "warning",
            "corpus: 1 passages are longer than 512 words; encoders and prompts may cut them: d0",
        ),
        ({"questions": ("a b", "A b")}, "warning", "queries: 1 questions repeat another one: q1"),
        ({"questions": ("?",)}, "error", "queries: 1 questions have no word: q0"),
        ({"questions": ("a", "b")}, "note", "qrels: 1 questions have no gold passage: q1"),
        (
            {"has_qrels": False},
            "note",
            "qrels: relevance is not annotated: no figure can use gold passages",
        ),
        (
            {"target": {"references": ("Rome", "?!")}},
            "error",
            "targets: 1 of 1 questions have an answer without a word or number (it would match "
            "everything): q0",
        ),
        (
            {"target": {"references": ()}},
            "warning",
            "targets: 1 of 1 questions have a target but no accepted answer: q0",
        ),
        (
            {"target": {"wanted": ("OSLO", "rome!")}},
            "error",
            "targets: 1 of 1 questions have a wanted answer that equals an accepted one: q0",
        ),
        (
            {"target": {"references": ("not Oslo",)}},
            "warning",
            "targets: 1 of 1 questions have an accepted answer that contains the wanted one: q0",
        ),
        (
            {"target": {"references": ("so",), "wanted": ("Oslo or so",)}},
            "warning",
            "targets: 1 of 1 questions have a wanted answer that contains an accepted one: q0",
        ),
        (
            {"questions": ("Was it Oslo?",)},
            "warning",
            "targets: 1 of 1 questions have the wanted answer in the question: q0",
        ),
        (
            {"questions": ("Was it Rome?",)},
            "warning",
            "targets: 1 of 1 questions have an accepted answer in the question: q0",
        ),
        (
            {"drafts": ("Oslo.", "No town.")},
            "warning",
            "drafts: 1 of 2 texts (50.0%) do not contain the answer they argue for: q0[2]",
        ),
        (
            {"drafts": ("Oslo, not Rome.",)},
            "warning",
            "drafts: 1 of 1 texts (100.0%) contain an accepted answer: q0[1]",
        ),
        (
            {"drafts": ("Oslo a", "oslo  A")},
            "warning",
            "drafts: 1 of 2 texts (50.0%) repeat another text: q0[2]",
        ),
        (
            {"drafts": ("Oslo â€™s",)},
            "warning",
            "drafts: 1 of 1 texts (100.0%) hold UTF-8 that was read as Windows-1252 or Latin-1: "
            "q0[1]",
        ),
        (
            {"drafts": {"q0": (), "q1": ("a",)}, "questions": ("a", "b")},
            "warning",
            "drafts: 1 targets have no text: q0",
        ),
        (
            {"metadata": {"q0": {"released_target": {"complete": True}}}},
            "note",
            "drafts: the texts of 1 questions are whole passages with their retrieval part; an "
            "attack that adds a question prefix doubles it",
        ),
        (
            {"target": {"gold_ids": ("d7",)}},
            "error",
            "ids: 1 gold passages are not in the corpus: d7",
        ),
        ({"targets": {}}, "error", "ids: 1 questions have no entry in the targets: q0"),
        (
            {"targets": {"q0": Target(query_id="q1"), "z": Target(query_id="z")}},
            "error",
            "ids: 1 targets belong to no question: z",
        ),
        (
            {"targets": {"q0": Target(query_id="q1"), "z": Target(query_id="z")}},
            "error",
            "ids: 1 targets stand under another question's id: q0",
        ),
    ],
)
def test_each_fault_is_found(parts: dict[str, Any], severity: str, message: str) -> None:
    assert message in found(data(**parts), severity)


def test_an_untargeted_question_with_an_empty_answer_only_warns() -> None:
    faulty = data(target={"wanted": (), "references": ("×",)}, drafts=())
    assert found(faulty, "error") == []
    assert any(
        "no target and an accepted answer without a word" in m for m in found(faulty, "warning")
    )


def test_answers_match_whole_tokens_only() -> None:
    sound = data(target={"wanted": ("no",), "references": ("yes",)}, drafts=("I don't know.",))
    assert any("do not contain the answer" in message for message in found(sound, "warning"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.14", " 3.14 "),
        ("-5 or +5", " -5 or +5 "),
        ("1910-1920", " 1910 1920 "),
        ("the 19th, 1,000.", " the 19th 1,000 "),
        ("ﬁne CAFÉ", " fine café "),
        ("?", ""),
    ],
)
def test_tokens_keep_numbers_whole(text: str, expected: str) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    "text", ["itâ€™s", "cafÃ©", "1â€“2", "Â£5", "aâ€\x9db", "it\u00e2\u0080\u0099s", "Âµ", "ðŸ˜€"]
)
def test_misread_text_is_recognized(text: str) -> None:
    assert has_mojibake(text)


@pytest.mark.parametrize(
    "text",
    [
        "it’s",
        "café",
        "1–2 £5",
        "«\u00a0été\u00a0»",
        "CAFÉ»",
        "“café”…",
        "São Ângelo",
        "Ålesund ÅÄÖ",
        "日本",
    ],
)
def test_sound_text_is_not_taken_for_misread(text: str) -> None:
    assert not has_mojibake(text)
