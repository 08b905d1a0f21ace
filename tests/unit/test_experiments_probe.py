"""Two-hop questions about bridges and where their architects were born; rule-based readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ragassay import canon, config, prompts
from ragassay.data.beir import Beir
from ragassay.data.released import read_targets
from ragassay.errors import BackendError, BackendUnavailable, ConfigError, StoreError
from ragassay.experiments import probe as probe_module
from ragassay.experiments.probe import (
    CONTEXTS,
    Candidate,
    Probe,
    Verified,
    build_probe,
    find_candidates,
    screen,
    verify,
)
from ragassay.experiments.probe_text import (
    asks_for,
    kind_of,
    mentions,
    names_in,
    substitute,
    title_forms,
)
from ragassay.experiments.setup import Experiment
from ragassay.scoring.match import PublishedMatch
from ragassay.types import (
    Dataset,
    Generation,
    Passage,
    Query,
    Request,
    Sampling,
    ScoreRecord,
    Target,
)

NAMES = ("Marlow", "Dunmere", "Ostrell", "Pellam", "Quorn", "Rathby")
PEOPLE = ("Ada Kerrin", "Bo Lind", "Cy Morrow", "Dee Nash", "Eli Orde", "Fay Pirn")
TOWNS = ("Tolvane", "Urswick", "Velden", "Wyrley", "Xanten", "Yarrowby")
SAMPLING = Sampling(max_tokens=16)
TEMPLATE = prompts.load("answer")


def hop(n: int) -> tuple[Passage, Passage]:
    """The passage about a bridge, and the one about its architect."""
    return (
        Passage(
            id=f"a{n}",
            title=f"{NAMES[n]} Bridge",
            text=f"The {NAMES[n]} Bridge was designed by {PEOPLE[n]} and opened in 18{n}1.",
        ),
        Passage(
            id=f"b{n}",
            title=f"{PEOPLE[n]} (architect)",
            text=f"{PEOPLE[n]} was born in {TOWNS[n]}. Many in {TOWNS[n]} remember it.",
        ),
    )


def world(count: int = 6, **changes: Any) -> Dataset:
    """A data set of two-hop questions; ``changes`` replace fields of the first one's target."""
    queries = [
        Query(id=f"q{n}", text=f"Where was the architect of the {NAMES[n]} Bridge born?", group="g")
        for n in range(count)
    ]
    targets = {
        f"q{n}": Target(query_id=f"q{n}", references=(TOWNS[n],), gold_ids=(f"b{n}", f"a{n}"))
        for n in range(count)
    }
    if changes:
        targets["q0"] = replace(targets["q0"], **changes)
    return Dataset(
        name="bridges",
        fingerprint="f",
        corpus=tuple(passage for n in range(count) for passage in hop(n)),
        queries=tuple(queries),
        targets=targets,
        has_qrels=True,
    )


def edited(question: str = "", **passages: tuple[str, str]) -> Dataset:
    """The world with the first question, or passages (title and text by id), replaced."""
    data = world()
    corpus = tuple(
        Passage(id=p.id, title=passages[p.id][0], text=passages[p.id][1]) if p.id in passages else p
        for p in data.corpus
    )
    queries = data.queries
    if question:
        queries = (replace(queries[0], text=question), *queries[1:])
    return replace(data, corpus=corpus, queries=queries)


def first(data: Dataset, **options: Any) -> Candidate:
    return next(c for c in find_candidates(data, **options) if c.query.id == "q0")


def reason(data: Dataset, **options: Any) -> str:
    return screen(data, **options).unusable["q0"]


# ------------------------------------------------------------------------------ candidates


def test_every_two_hop_question_gives_a_candidate_whose_second_hop_is_changed() -> None:
    found = find_candidates(world())
    assert [candidate.query.id for candidate in found] == [f"q{n}" for n in range(6)]
    for n, candidate in enumerate(found):
        target = candidate.wanted[0]
        assert (candidate.first.id, candidate.second.id) == (f"a{n}", f"b{n}")
        assert candidate.bridge == PEOPLE[n]
        assert target in set(TOWNS) - {TOWNS[n]}
        assert candidate.text == (
            f"{PEOPLE[n]} was born in {target}. Many in {target} remember it."
        )
        assert candidate.drawn


def test_the_wanted_answer_of_the_data_set_comes_first_and_keeps_its_aliases() -> None:
    candidate = first(world(wanted=("Port Zell", "Zell")))
    assert candidate.wanted == ("Port Zell", "Zell")
    assert "born in Port Zell." in candidate.text
    assert not candidate.drawn
    given = first(world(wanted=("Port Zell",)), targets={"q0": ["Ulm"]})
    assert given.wanted == ("Ulm",)


def test_every_form_of_the_reference_goes_away() -> None:
    data = edited(b0=("Ada Kerrin", "Ada Kerrin left TOLVANE's harbor; Tolvane-on-Sea is not it."))
    data = replace(
        data,
        targets={
            **data.targets,
            "q0": replace(data.targets["q0"], references=("Tolvane", "Tolvane-on-Sea")),
        },
    )
    candidate = first(data, targets={"q0": ["Ulm"]})
    assert candidate.text == "Ada Kerrin left Ulm's harbor; Ulm is not it."
    assert not mentions(candidate.text, candidate.references)


def test_a_passage_that_does_not_hold_its_name_is_headed_by_it() -> None:
    data = edited(b0=("Ada Kerrin", "She was born in Tolvane."))
    assert first(data, targets={"q0": ["Ulm"]}).text == "Ada Kerrin: She was born in Ulm."


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gold_ids": ()}, "not exactly two"),
        ({"gold_ids": ("a0",)}, "not exactly two"),
        ({"gold_ids": ("a0", "b0", "a1")}, "not exactly two"),
        ({"gold_ids": ("a0", "gone")}, "not exactly two"),
        ({"references": ()}, "no reference"),
        ({"references": ("?!", " ")}, "no reference"),
        ({"references": ("Yes",)}, "yes or no"),
        ({"references": ("Tolvane", "no.")}, "yes or no"),
        ({"references": ("Ulm",)}, "no supporting passage"),
        ({"references": ("Ada Kerrin",)}, "both supporting passages"),
        ({"references": ("architect",)}, "a title only"),
        ({"gold_ids": ("a1", "b0")}, "does not name the other"),
        ({"wanted": ("Marlow",)}, "question or its support"),
        ({"wanted": ("tolvane",)}, "question or its support"),
        ({"wanted": ("Old Tolvane",)}, "question or its support"),
        ({"wanted": ("Ulm", "Ada Kerrin")}, "question or its support"),
    ],
)
def test_a_question_that_cannot_be_used_is_left_out_with_the_reason(
    change: dict[str, Any], why: str
) -> None:
    data = world(**change)
    assert why in reason(data)
    assert [c.query.id for c in find_candidates(data)] == [f"q{n}" for n in range(1, 6)]


def test_a_reference_that_is_only_part_of_a_word_does_not_count() -> None:
    data = edited(b0=("Ada Kerrin", "Ada Kerrin was born in Tolvanesborough."))
    assert "no supporting passage" in reason(data)


def test_a_question_that_names_the_bridge_itself_has_one_hop() -> None:
    data = edited("Where was Ada Kerrin, architect of the Marlow Bridge, born?")
    assert "the question itself names" in reason(data)


@pytest.mark.parametrize(
    "text",
    [
        "Ada Kerrin was born in Tolvane and built the Marlow Bridge.",
        "Ada Kerrin, who was born in Tolvane, won the Golden Compass.",
    ],
)
def test_a_changed_passage_that_names_what_is_asked_about_is_left_out(text: str) -> None:
    data = edited(
        "Where was the Golden Compass winner who built the Marlow Bridge born?",
        a0=("Marlow Bridge", "The Marlow Bridge by Ada Kerrin won the Golden Compass."),
        b0=("Ada Kerrin", text),
    )
    assert "names what the question asks about" in reason(data)


def test_an_answer_that_is_part_of_the_linking_name_is_left_out() -> None:
    data = edited(
        a0=("Marlow Bridge", "The Marlow Bridge was designed by the Society."),
        b0=("Society", "The Society of Tolvane is the Society."),
    )
    data = replace(
        data,
        targets={
            **data.targets,
            "q0": replace(data.targets["q0"], references=("Society of Tolvane", "Tolvane")),
        },
    )
    assert first(data, targets={"q0": ["Ulm"]}).text == "The Ulm is the Society."
    lost = edited(
        a0=("Marlow Bridge", "The Marlow Bridge was designed by the Kerrin Trust."),
        b0=("Kerrin Trust", "The Kerrin Trust Fund was the designer."),
    )
    lost = replace(
        lost,
        targets={
            **lost.targets,
            "q0": replace(lost.targets["q0"], references=("Kerrin Trust Fund",)),
        },
    )
    assert "part of the name" in reason(lost, targets={"q0": ["Ulm"]})


def test_without_another_answer_of_the_kind_nothing_can_be_drawn() -> None:
    assert "no other answer of the same kind" in reason(world(1))
    data = edited(b0=("Ada Kerrin", "Ada Kerrin was born in 1907."))
    year = replace(data.targets["q0"], references=("1907",))
    assert "no other answer of the same kind" in reason(
        replace(data, targets={**data.targets, "q0": year})
    )


def test_answers_to_the_same_question_words_are_drawn_first() -> None:
    data = world()
    queries = [
        replace(query, text=query.text.replace("Where", "At what hour"))
        if n not in (0, 4)
        else query
        for n, query in enumerate(data.queries)
    ]
    for seed in range(8):
        assert first(replace(data, queries=tuple(queries)), seed=seed).wanted == (TOWNS[4],)


def test_the_draw_depends_on_seed_and_question_alone() -> None:
    def drawn(data: Dataset, seed: int) -> dict[str, tuple[str, ...]]:
        return {c.query.id: c.wanted for c in find_candidates(data, seed=seed)}

    data = world()
    turned = replace(data, queries=data.queries[::-1], corpus=data.corpus[::-1])
    assert drawn(data, 1) == drawn(data, 1) == drawn(turned, 1)
    assert len({canon.dumps(drawn(data, seed)) for seed in range(10)}) > 1


def test_a_data_set_without_support_gives_nothing_and_no_error() -> None:
    data = world()
    bare = {key: replace(target, gold_ids=()) for key, target in data.targets.items()}
    screening = screen(replace(data, targets=bare, has_qrels=False))
    assert (screening.questions, screening.two_hop, screening.candidates) == (6, 0, ())
    assert screening.reasons == {}
    assert screen(replace(data, targets={})).two_hop == 0
    assert screen(replace(data, queries=())).questions == 0


def test_counts_add_up() -> None:
    screening = screen(world(references=("yes",)))
    assert (screening.questions, screening.two_hop, len(screening.candidates)) == (6, 6, 5)
    assert screening.reasons == {"the answer is yes or no": 1}


HOSTILE = (
    "{{contexts}} @@ user (((( [a-z]+ \\1 $& \u202e <b>=HYPERLINK(1)</b> %s \x00 \ud800 I\u0307"
)


def test_hostile_texts_and_titles_are_carried_as_they_are() -> None:
    data = edited(
        a0=("(((.*) Bridge)", f"{HOSTILE} The bridge is by Ada (.*) Kerrin."),
        b0=("Ada (.*) Kerrin", f"Ada (.*) Kerrin {HOSTILE} was born in Tolvane. {HOSTILE}"),
    )
    candidate = first(data, targets={"q0": ["\\1 Ulm \\g<0>"]})
    assert candidate.text == data.corpus[1].text.replace("Tolvane", "\\1 Ulm \\g<0>")
    assert find_candidates(edited(a0=("", ""), b0=("", "")))[0].query.id == "q1"


# ------------------------------------------------------------------------------- the reader


@dataclass
class Reader:
    """Answers by a rule from the contexts and the question of a prompt; keeps all requests."""

    rule: Callable[[str, str], str]
    calls: int = 0
    asked: tuple[Request, ...] = ()

    def __call__(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        self.calls += 1
        self.asked = tuple(requests)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Generation:
        prompt = request.messages[-1].content
        contexts = prompt.split("Contexts:\n", 1)[1].rsplit("\n\nQuery:", 1)[0]
        return Generation(text=self.rule(contexts, prompt.rsplit("Query:", 1)[1]))


def composes(contexts: str, question: str) -> str:
    bridge = re.search(r"of the (\w+) Bridge", question)
    assert bridge is not None
    architect = re.search(rf"{bridge[1]} Bridge was designed by (\w+ \w+)", contexts)
    if architect is None:
        return "I don't know"
    town = re.search(rf"{architect[1]} was born in (\w+)", contexts)
    return f"It was {town[1]}." if town else "I don't know"


def reads_b(contexts: str, question: str) -> str:
    town = re.search(r"was born in (\w+)", contexts)
    return town[1] if town else "I don't know"


def names_all(contexts: str, question: str) -> str:
    return ", ".join(TOWNS)


def reads_nothing(contexts: str, question: str) -> str:
    return "I don't know"


def bridge_in_a(contexts: str, question: str) -> str:
    return ", ".join(TOWNS) if "designed by" in contexts else "I don't know"


def read(rule: Callable[[str, str], str], **options: Any) -> list[Verified]:
    return verify(find_candidates(world()), Reader(rule), TEMPLATE, SAMPLING, **options)


def test_a_reader_that_composes_accepts_every_candidate() -> None:
    verified = read(composes)
    assert [each.accepted for each in verified] == [True] * 6
    for each in verified:
        assert each.reason == ""
        assert {context: dict(labels) for context, labels in each.labels.items()} == {
            "none": {"tokens": False}, "a": {"tokens": False},
            "b": {"tokens": False}, "ab": {"tokens": True},
        }  # fmt: skip
        assert each.answers["ab"] == f"It was {each.candidate.wanted[0]}."


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (reads_b, "from B alone"),
        (names_all, "without any passage"),
        (bridge_in_a, "from A alone"),
        (reads_nothing, "does not give the target from A and B"),
    ],
)
def test_a_reader_that_does_not_need_both_rejects_every_candidate(
    rule: Callable[[str, str], str], why: str
) -> None:
    verified = read(rule)
    assert len(verified) == 6
    assert all(why in each.reason and not each.accepted for each in verified)


def test_everything_is_asked_in_one_call_with_the_prompt_of_the_victim() -> None:
    reader = Reader(composes)
    candidates = find_candidates(world())
    verify(candidates, reader, TEMPLATE, SAMPLING)
    assert reader.calls == 1
    assert len(reader.asked) == 4 * len(candidates)
    assert {request.sampling for request in reader.asked} == {SAMPLING}
    candidate, a = candidates[0], candidates[0].first.text
    for request, contexts in zip(
        reader.asked, ("", a, candidate.text, f"{a}\n{candidate.text}"), strict=False
    ):
        assert request.messages == TEMPLATE.render(
            {"contexts": contexts, "question": candidate.query.text}
        )


def test_titles_stand_before_a_where_the_victim_sees_them_but_never_before_b() -> None:
    reader = Reader(composes)
    [candidate] = find_candidates(world())[:1]
    verify([candidate], reader, TEMPLATE, SAMPLING, titles=True)
    assert f"Marlow Bridge\n{candidate.first.text}\n{candidate.text}" in (
        reader.asked[3].messages[-1].content
    )


def test_no_prompt_but_the_two_with_b_holds_the_target() -> None:
    reader = Reader(composes)
    [candidate] = find_candidates(world())[:1]
    verify([candidate], reader, TEMPLATE, SAMPLING)
    held = [candidate.wanted[0] in request.messages[-1].content for request in reader.asked]
    assert held == [False, False, True, True]


def test_a_further_rule_must_agree() -> None:
    def partly(contexts: str, question: str) -> str:
        answer = composes(contexts, question)
        return answer if "It was" in answer else f"x{'x'.join(TOWNS)}x"  # substrings, no tokens

    assert all(each.accepted for each in read(partly))
    for each in read(partly, scorer=PublishedMatch()):
        assert each.reason == "the reader gives the target without any passage"
        assert dict(each.labels["none"]) == {"tokens": False, "published": True}


class Undecided:
    """A rule that never decides."""

    identity = "undecided"

    def score(self, *, trial_key: str, **_: Any) -> ScoreRecord:
        return ScoreRecord(
            trial_key=trial_key, scorer="undecided", version="1", target_positive=None,
            correct=None, abstained=None, uncertain=("target_positive",),
        )  # fmt: skip


def test_a_rule_that_cannot_decide_accepts_nothing() -> None:
    verified = read(composes, scorer=Undecided())
    assert {each.reason for each in verified} == {"a rule could not decide about an answer"}
    assert verified[0].labels["ab"] == {"tokens": True, "undecided": None}


def test_a_failed_answer_rejects_only_its_own_candidate_and_is_no_answer() -> None:
    def ask(requests: Sequence[Request]) -> list[Generation | BackendError]:
        answers = Reader(composes)(requests)
        return [BackendError("gone") if n == 7 else answer for n, answer in enumerate(answers)]

    verified = verify(find_candidates(world()), ask, TEMPLATE, SAMPLING)
    assert [each.accepted for each in verified] == [True, False, True, True, True, True]
    assert verified[1].reason == "the reader failed to answer"
    assert verified[1].answers["ab"] is None
    assert verified[1].labels["ab"] == {}
    assert set(verified[1].answers) == set(CONTEXTS)


def test_no_candidates_need_no_reader() -> None:
    assert verify([], Reader(composes), TEMPLATE, SAMPLING) == []


# ----------------------------------------------------------------------------- the experiment

READERS = """
from dataclasses import dataclass
import re
from ragassay.errors import BackendError, BackendUnavailable
from ragassay.types import Generation

@dataclass(frozen=True, kw_only=True)
class Rule:
    name: str = "reader"
    mode: str = "compose"
    gathers: bool = False

    @property
    def identity(self):
        return f"rule:{self.name}"

    def generate(self, requests):
        return [self._one(request.messages[-1].content) for request in requests]

    def _one(self, prompt):
        contexts, question = prompt.rsplit("Query:", 1)
        if self.mode == "dead":
            return BackendError("the server has gone away")
        if self.mode == "absent":
            raise BackendUnavailable("no weights")
        if self.mode == "moody" and "Quorn" in question and "designed" in contexts:
            return BackendError("refused this prompt")
        name = re.search(r"of the (\\w+) Bridge", question)[1]
        architect = re.search(rf"{name} Bridge was designed by (\\w+ \\w+)", contexts)
        who = r"\\w+ \\w+" if self.mode == "b" else architect[1] if architect else None
        town = re.search(rf"{who} was born in (\\w+)", contexts) if who else None
        return Generation(text=town[1] if town else "I don't know")
"""


def rows(path: Path, items: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the world in the BEIR layout and a module of readers."""
    data = world()
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    rows(
        tmp_path / "data" / "corpus.jsonl",
        [{"_id": p.id, "title": p.title, "text": p.text} for p in data.corpus],
    )
    rows(
        tmp_path / "data" / "queries.jsonl",
        [
            {"_id": q.id, "text": q.text,
             "metadata": {"references": list(data.targets[q.id].references)}}
            for q in data.queries
        ],
    )  # fmt: skip
    (tmp_path / "data" / "qrels" / "test.tsv").write_text(
        "".join(f"{q}\t{p}\t1\n" for q, t in data.targets.items() for p in t.gold_ids),
        encoding="utf-8",
    )
    (tmp_path / "readers.py").write_text(READERS, encoding="utf-8")
    return tmp_path


def experiment(folder: Path, **changes: Any) -> Experiment:
    tree: dict[str, Any] = {
        "name": "bridges",
        "dataset": {"plugin": "beir", "path": str(folder / "data")},
        "generator": {"plugin": "readers.py:Rule", "name": "victim"},
        "helper": {"plugin": "readers.py:Rule", "name": "other", "max_tokens": 24},
    }
    tree |= changes
    file = config.parse({key: value for key, value in tree.items() if value is not None})
    return Experiment(file=file, raw=b"", base=folder)


def build(folder: Path, *, mode: str = "compose", **options: Any) -> Probe:
    helper = {"plugin": "readers.py:Rule", "name": f"other {mode}", "mode": mode}
    return build_probe(experiment(folder, helper=helper), folder / "out.jsonl", **options)


def written(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "out.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_file_loads_as_targets_with_b_as_the_only_text(folder: Path) -> None:
    result = build(folder)
    assert (result.accepted, result.written, result.path) == (6, 6, folder / "out.jsonl")
    assert result.reasons == {}
    data = Beir(path=str(folder / "data"), targets=str(folder / "out.jsonl"), group_size=1).load()
    by_id = {each.candidate.query.id: each.candidate for each in result.verified}
    assert data.drafts == {key: (candidate.text,) for key, candidate in by_id.items()}
    assert len({query.group for query in data.queries}) == 6
    for key, candidate in by_id.items():
        assert data.targets[key].wanted == candidate.wanted
        assert data.targets[key].references == candidate.references
        facts = data.metadata[key]["released_target"]
        assert isinstance(facts, dict)
        assert (facts["method"], facts["complete"]) == ("split_knowledge", True)


def test_a_line_says_what_is_injected_and_where_it_comes_from(folder: Path) -> None:
    build(folder)
    line = written(folder)[0]
    assert {key: line[key] for key in (
        "query_id", "references", "injected", "method", "group", "seed", "accepted", "reason",
        "bridge", "a", "b_from", "kind", "target_drawn", "reader",
    )} == {
        "query_id": "q0", "references": ["Tolvane"], "injected": True,
        "method": "split_knowledge", "group": "q0", "seed": 12, "accepted": True, "reason": "",
        "bridge": "Ada Kerrin", "a": "a0", "b_from": "b0", "kind": "word", "target_drawn": True,
        "reader": "rule:other compose",
    }  # fmt: skip
    assert line["labels"]["ab"] == {"tokens": True, "endorse": True}
    assert line["answers"]["ab"] == line["wanted"][0]
    assert line["sampling"]["max_tokens"] == 64


def test_equal_experiments_write_equal_bytes(folder: Path) -> None:
    build(folder)
    before = (folder / "out.jsonl").read_bytes()
    build(folder, force=True)
    assert (folder / "out.jsonl").read_bytes() == before
    assert not list(folder.glob(".*.tmp"))


def test_rejected_candidates_are_written_only_when_asked_for(folder: Path) -> None:
    result = build(folder, mode="b")
    assert (result.accepted, result.written, result.path) == (0, 0, None)
    assert result.reasons == {"the reader gives the target from B alone": 6}
    assert not (folder / "out.jsonl").exists()
    result = build(folder, mode="b", all_candidates=True)
    assert (result.accepted, result.written) == (0, 6)
    assert {line["reason"] for line in written(folder)} == {
        "the reader gives the target from B alone"
    }
    assert not any(line["accepted"] for line in written(folder))
    assert len(read_targets(folder / "out.jsonl")) == 6


def test_a_file_that_is_there_is_kept_unless_forced_and_no_model_is_asked(folder: Path) -> None:
    (folder / "out.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="is there already; --force"):
        build(folder, mode="absent")
    assert (folder / "out.jsonl").read_text(encoding="utf-8") == "mine"
    build(folder, force=True)
    assert len(written(folder)) == 6


def test_a_failure_to_write_leaves_the_old_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (folder / "out.jsonl").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(probe_module.os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        build(folder, force=True)
    assert (folder / "out.jsonl").read_text(encoding="utf-8") == "mine"
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("name", "why"),
    [("out.json", r"must end in \.jsonl"), ("no/out.jsonl", "no folder"), ("d.jsonl", "regular")],
)
def test_a_wrong_place_for_the_file_is_refused(folder: Path, name: str, why: str) -> None:
    (folder / "d.jsonl").mkdir()
    with pytest.raises(ConfigError, match=why):
        build_probe(experiment(folder), folder / name, force=True)


def test_without_a_helper_there_is_no_reader(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"name it under \[helper\]"):
        build_probe(experiment(folder, helper=None), folder / "out.jsonl")


def test_a_reader_that_is_a_victim_is_refused(folder: Path) -> None:
    rule = {"plugin": "readers.py:Rule", "name": "x"}
    several = [{"plugin": "readers.py:Rule", "label": "one"}, {**rule, "label": "two"}]
    for victims in (rule, several):
        with pytest.raises(ConfigError, match=r"the same model \(rule:x\)"):
            build_probe(experiment(folder, generator=victims, helper=rule), folder / "out.jsonl")
    assert not (folder / "out.jsonl").exists()


def test_a_template_without_the_slots_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="must have the slots"):
        build_probe(
            experiment(folder, prompt={"template": "poisonedrag_write"}), folder / "out.jsonl"
        )


def test_a_refused_prompt_costs_one_candidate(folder: Path) -> None:
    result = build(folder, mode="moody")
    assert result.accepted == 5
    assert result.reasons == {"the reader failed to answer": 1}


def test_a_dead_reader_ends_in_its_error_and_writes_nothing(folder: Path) -> None:
    with pytest.raises(BackendError, match="gone away"):
        build_probe(
            experiment(
                folder,
                helper={"plugin": "readers.py:Rule", "mode": "dead"},
                run={"max_failures": 3},
            ),
            folder / "out.jsonl",
        )
    with pytest.raises(BackendUnavailable, match="no weights"):
        build(folder, mode="absent")
    assert not (folder / "out.jsonl").exists()


def test_texts_that_utf8_cannot_hold_are_written_as_escapes(folder: Path) -> None:
    path = folder / "data" / "corpus.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["text"] += " \ud800 =1+1 \u2028 caf\u00e9"
    rows(path, lines)
    assert build(folder).written == 6
    data = Beir(path=str(folder / "data"), targets=str(folder / "out.jsonl")).load()
    assert all(text[0].endswith(" \ud800 =1+1 \u2028 caf\u00e9") for text in data.drafts.values())


# ------------------------------------------------------------------------------ the text work


@pytest.mark.parametrize(
    ("text", "references", "target", "result"),
    [
        ("Born in Oslo, in OSLO's harbor.", ["oslo"], "Rome", "Born in Rome, in Rome's harbor."),
        ("Oslo and Osloer.", ["Oslo"], "Rome", "Rome and Osloer."),
        ("It was an error.", ["error"], "success", "It was a success."),
        ("It was a success.", ["a success"], "error", "It was an error."),
        ("An error came.", ["error"], "Success", "A Success came."),
        ("The Twist came.", ["the Twist"], "Waltz", "The Waltz came."),
        ("in The Dark Tower again", ["The Dark Tower"], "Ulysses", "in Ulysses again"),
        ("in the Dark Tower again", ["Dark Tower"], "The Iliad", "in The Iliad again"),
        ("Twist it. twist it.", ["twist"], "waltz", "Waltz it. waltz it."),
        ('He played "Go Now!" then.', ["Go Now!"], "Rest", 'He played "Rest" then.'),
        ('in "Now and Then" (1995).', ['"Now and Then" (1995)'], "Rest", "in Rest."),
        ("born 2 March 1972 (aged 3)", ["2 March 1972"], "1 May 1980", "born 1 May 1980 (aged 3)"),
        ("of New York City now", ["New York", "York City"], "Rome", "of Rome now"),
        ("nothing here", ["Oslo"], "Rome", "nothing here"),
        ("", ["Oslo"], "Rome", ""),
        ("Oslo", ["Oslo"], "\\1", "\\1"),
        ("\u6771\u4eac\u90fd\u306b\u4f4f\u3080", ["\u6771\u4eac"], "\u5927\u962a",
         "\u5927\u962a\u90fd\u306b\u4f4f\u3080"),
    ],
)  # fmt: skip
def test_a_reference_is_replaced_with_what_belongs_to_it(
    text: str, references: list[str], target: str, result: str
) -> None:
    assert substitute(text, references, target) == result


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("1941", "year"), ("10 January 1920", "date"), ("May 1920", "date"), ("22 November", "day"),
        ("six", "number"), ("1,500", "number"), ("15%", "number"), ("1980s", "number"),
        ("two hundred", "number"), ("69th Film Festival", "name"), ("Bath, Maine", "place"),
        ("Ana Roe", "person"), ("J. R. R. Tolk", "person"), ("Ludwig van Houten", "person"),
        ("Sam Roe Stadium", "name"), ("New Bath", "name"), ("Go Now!", "name"),
        ("The Long Way of Ana Roe", "name"), ("Oslo", "word"), ("in the village of Roe", "adjunct"),
        ("novelist", "phrase"), ("a failed coup", "phrase"), ("March", "word"), ("", "phrase"),
        ("\u6771\u4eac", "phrase"),
    ],
)  # fmt: skip
def test_the_kind_of_an_answer_is_read_off_its_shape(answer: str, kind: str) -> None:
    assert kind_of(answer) == kind


def test_names_of_a_question_are_its_capitalized_runs() -> None:
    assert names_in("In which film by \u00c9va Roe and Bo Lind is the Order of the Bath?") == (
        "\u00c9va Roe", "Bo Lind", "Order of the Bath",
    )  # fmt: skip
    assert names_in("Tolvane has which mayor?") == ("Tolvane",)
    assert names_in("who is it") == names_in("") == ()


def test_a_title_gives_its_names_without_what_only_tells_it_apart() -> None:
    assert title_forms("Alien (film)") == ("Alien (film)", "Alien")
    assert title_forms("X&amp;Y") == ("X&amp;Y", "X&Y")
    assert title_forms("Masons' Hall, London")[-1] == "Masons' Hall"
    assert title_forms("Hilo, Hawaii") == ("Hilo, Hawaii",)
    assert title_forms("") == title_forms("(?)") == ()


def test_what_is_asked_for_is_the_question_word_and_the_next() -> None:
    assert asks_for("In what state was Whom born?") == ("what", "state")
    assert asks_for("The band is from where?") == ("where", "")
    assert asks_for("Name the band.") == ("what", "")


# --------------------------------------------------------------------------------- real data


def test_hotpotqa_gives_candidates_that_keep_every_rule(shared_data: Path) -> None:
    data = Beir(path=str(shared_data / "hotpotqa")).load()
    screening = screen(data)
    assert (screening.questions, screening.two_hop) == (100, 100)
    assert len(screening.candidates) + sum(screening.reasons.values()) == 100
    assert len(screening.candidates) == 24
    for candidate in screening.candidates:
        a = f"{candidate.first.title}\n{candidate.first.text}"
        assert mentions(a, [candidate.bridge])
        assert mentions(candidate.text, [candidate.bridge])
        assert mentions(candidate.text, candidate.wanted)
        assert not mentions(candidate.text, candidate.references)
        bridges = title_forms(candidate.second.title)  # "Alien" may name both film and music
        names = set(title_forms(candidate.first.title)) - set(bridges)
        assert names
        assert not mentions(candidate.text, names)
        for text in (a, candidate.second.text, candidate.second.title, candidate.query.text):
            assert not mentions(text, candidate.wanted)
