"""Crafting over a real, small system: budgets, order, paraphrases, and what attackers observe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ragassay.attacks.poisonedrag import PoisonedRAG
from ragassay.config import AttackPart, parse
from ragassay.errors import BackendError, ConfigError, DataError, KnowledgeError
from ragassay.experiments.crafting import attack_experiment
from ragassay.experiments.paraphrases import with_paraphrases
from ragassay.experiments.poison import Crafter, craft_all, delivery, delivery_warnings
from ragassay.experiments.setup import NamedAttack, Setup, load_experiment, set_up
from ragassay.experiments.victim import (
    AttackedSystem,
    open_encoder,
    open_language_model,
    token_counter,
)
from ragassay.plugins import Index
from ragassay.store import RunFolder
from ragassay.testing.toys import ToyEncoder
from ragassay.types import Generation, Knowledge, Passage, PoisonSet, Query, Request, Target

EXPERIMENT = """
name = "small"
budgets = [1, 3]
[dataset]
plugin = "beir"
path = "data"
group_size = 2
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 4096 }
k = 3
[generator]
plugin = "scripted"
[[defense]]
plugin = "score_gap"
[calibration]
source = "crossfit"
"""
TOWNS = [f"town{n}" for n in range(24)]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    write_rows(data / "corpus.jsonl", [
        {"_id": f"d{n}-{i}", "title": town, "text": text} for n, town in enumerate(TOWNS)
        for i, text in enumerate([f"The harbor of {town} was built by mason{n} in stone.",
                                  f"The market of {town} sells bread and rope."])
    ])  # fmt: skip
    write_rows(data / "queries.jsonl", [
        {"_id": f"q{n}", "text": f"Who built the harbor of {town}?",
         "metadata": {"correct_answers": [f"mason{n}"]}} for n, town in enumerate(TOWNS)
    ])  # fmt: skip
    write_rows(data / "targets.jsonl", [
        {"query_id": f"q{n}", "query": f"Who built the harbor of {town}?",
         "correct_answers": [f"mason{n}"], "incorrect_answers": [f"rival{n}"],
         "poison_passages": [f"Source {i}: rival{n} built the harbor of {town}."
                             for i in range(3)]} for n, town in enumerate(TOWNS)
    ])  # fmt: skip
    (tmp_path / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    return tmp_path


def small(folder: Path, *settings: str) -> Setup:
    return set_up(load_experiment(folder / "small.toml", settings))


class Model:
    """Answers by a function of the whole prompt and the draw; keeps every request."""

    def __init__(self, reply: Callable[[str, int], str] = lambda prompt, draw: "x") -> None:
        self.requests: list[Request] = []
        self.reply = reply

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        self.requests += requests
        return [
            Generation(text=self.reply("\n".join(m.content for m in r.messages), r.sample_index),
                       input_tokens=7, output_tokens=2)
            for r in requests
        ]  # fmt: skip


@dataclass
class Written:
    """An attack that writes what it is told, whatever it is asked for."""

    texts: tuple[str, ...] = ("one", "two words", "three words here", "four")
    knowledge: Knowledge = field(default_factory=Knowledge)
    watch: Callable[[Any], None] = lambda view: None
    query_id: str = ""
    details: bool = True

    def craft(self, target: Target, view: Any, rng: np.random.Generator) -> PoisonSet:
        self.watch(view)
        name = self.query_id or target.query_id
        return PoisonSet(
            attack="written", query_id=name, knowledge=self.knowledge,
            passages=tuple(Passage(id=f"{name}-{i}-{text}", text=text)
                           for i, text in enumerate(self.texts)),
            details=tuple({"number": i} for i, _ in enumerate(self.texts)) if self.details else (),
        )  # fmt: skip


def named(instance: Any, title: str = "written", **changes: Any) -> NamedAttack:
    base = NamedAttack(title=title, plugin=title, identity=f"{title}:1", instance=instance,
                       options={})  # fmt: skip
    return replace(base, **changes)


def crafter(setup: Setup, helper: Model | None = None, index: Index | None = None,
            victim: Model | None = None) -> Crafter:  # fmt: skip
    system = None
    if index is not None:
        system = AttackedSystem(setup, lambda: index, lambda: victim or Model())
    return Crafter(setup=setup, helper=helper or Model(), system=system)


def indexed(setup: Setup, tmp_path: Path) -> Index:
    index: Index = setup.arms[0].retriever.instance.index(
        setup.dataset.corpus, fingerprint="f", cache_dir=tmp_path / "index"
    )
    return index


# -------------------------------------------------------------------------------------- budgets


def test_no_more_than_was_asked_for_is_kept_and_details_stay_with_their_passages(
    folder: Path,
) -> None:
    setup = small(folder)
    made = crafter(setup).craft(named(Written()), setup.evaluated[0])
    assert [p.text for p in made.poison.passages] == ["one", "two words", "three words here"]
    assert [d["number"] for d in made.poison.details] == [0, 1, 2]
    assert (made.asked, made.left_out) == (3, ())


def test_passages_with_too_many_words_are_left_out_and_recorded(folder: Path) -> None:
    setup = small(folder)
    made = crafter(setup).craft(named(Written(), max_words=1), setup.evaluated[0])
    assert [p.text for p in made.poison.passages] == ["one", "four"]
    assert [d["number"] for d in made.poison.details] == [0, 3]
    assert made.left_out == (2, 3)
    bare = crafter(setup).craft(named(Written(details=False), max_words=1), setup.evaluated[0])
    assert bare.poison.details == ()


def test_an_attack_is_asked_for_no_more_than_it_can_deliver(folder: Path) -> None:
    setup, seen = small(folder), []
    attack = Written(watch=lambda view: seen.append((view.budget, view.max_words)))
    attack.max_passages = 1  # type: ignore[attr-defined]
    made = crafter(setup).craft(named(attack, max_words=9), setup.evaluated[0])
    assert (made.asked, len(made.poison.passages), seen) == (1, 1, [(1, 9)])


def test_poison_for_another_question_is_refused(folder: Path) -> None:
    setup = small(folder)
    with pytest.raises(ConfigError, match="returned poison for 'zz', asked for 'q0'"):
        crafter(setup).craft(named(Written(query_id="zz")), setup.evaluated[0])


def test_what_is_missing_is_counted_question_by_question_and_worded(folder: Path) -> None:
    setup = replace(small(folder), attacks=(named(Written(), max_words=1),))
    made = crafter(setup)
    sets = {("written", q.id): made.craft(setup.attacks[0], q).poison for q in setup.evaluated}
    report = delivery(made, sets)
    assert report["written"]["short"] == {f"q{n}": 2 for n in range(len(TOWNS))}
    [warning] = delivery_warnings(report)
    assert "fewer than the 3 passages of at most 1 words asked for on 24 of 24" in warning
    assert "q0 2" in warning
    assert "and 14 more" in warning
    assert delivery_warnings({"a": {"asked": 1, "max_words": None, "questions": 9,
                                    "short": {}}}) == []  # fmt: skip


def test_knowledge_is_enforced_while_crafting(folder: Path) -> None:
    setup = small(folder)
    reaching = Written(watch=lambda view: view.correct_answers)
    with pytest.raises(KnowledgeError, match="declares correct_answer=False"):
        crafter(setup).craft(named(reaching), setup.evaluated[0])


def test_what_an_attack_spends_is_stored_with_its_poison(folder: Path) -> None:
    setup = small(folder)
    attack = Written(knowledge=Knowledge(llm="helper"),
                     watch=lambda view: view.ask_helper([[], []]))  # fmt: skip
    cost = crafter(setup).craft(named(attack), setup.evaluated[0]).poison.cost
    assert (cost.model_calls, cost.input_tokens, cost.output_tokens) == (2, 14, 4)
    assert cost.seconds > 0


# ---------------------------------------------------------------------------------------- keys


def test_a_key_changes_with_everything_that_the_texts_can_depend_on(folder: Path) -> None:
    setup = small(folder)
    query = setup.evaluated[0]

    def key(attack: NamedAttack, other: Setup = setup, **place: Any) -> str:
        return crafter(other).key(attack, place.get("query", query), place.get("standing", ()))

    blind, seeing = named(Written()), named(Written(knowledge=Knowledge(llm="query")))
    more = small(folder, "budgets=[1, 2]")
    victim = small(folder, "generator.max_tokens=7", "prompt.order=reverse")
    standing = (Passage(id="p", text="x"),)
    keys = [
        key(blind), key(replace(blind, max_words=9)), key(replace(blind, sequential=True)),
        key(blind, more), key(blind, query=setup.evaluated[1]), key(blind, standing=standing),
        key(replace(blind, identity="written:2")), key(seeing), key(seeing, victim),
        key(blind, small(folder, "seed=5")),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key(blind, victim) == key(blind), "what it cannot see does not count"


# --------------------------------------------------------------------------------------- order


def test_a_sequential_attacker_sees_the_poison_of_those_before_it_and_a_simultaneous_one_not(
    folder: Path, tmp_path: Path
) -> None:
    seen: dict[str, list[list[str]]] = {"after": [], "beside": []}

    def watching(name: str) -> Written:
        known = Knowledge(corpus="contents", retriever="query")
        return Written(
            knowledge=known, texts=(name,),
            watch=lambda view: seen[name].append([h.passage.text for h in view.retrieved()]),
        )  # fmt: skip

    @dataclass
    class First:
        knowledge: ClassVar[Knowledge] = Knowledge()

        def craft(self, target: Target, view: Any, rng: Any) -> PoisonSet:
            return PoisonSet(
                attack="first", query_id=target.query_id, knowledge=self.knowledge,
                passages=(Passage(id=f"first-{target.query_id}", text=view.question),),
            )  # fmt: skip

    setup = small(folder)
    setup = replace(setup, attacks=(
        named(First(), "first"), named(watching("beside"), "beside"),
        named(watching("after"), "after", sequential=True),
    ))  # fmt: skip
    run = RunFolder(tmp_path / "run")
    with run.writer():
        craft_all(crafter(setup, index=indexed(setup, tmp_path)), run)
    for number, query in enumerate(setup.evaluated):
        assert seen["after"][number][0] == query.text, "the planted passage is retrieved first"
        assert query.text not in seen["beside"][number]


def test_crafted_sets_are_kept_and_not_crafted_again(folder: Path, tmp_path: Path) -> None:
    count: list[int] = []
    attack = named(Written(watch=lambda view: count.append(1)))
    setup = replace(small(folder), attacks=(attack,))
    run = RunFolder(tmp_path / "run")
    with run.writer():
        first = craft_all(crafter(setup), run)
        again = craft_all(crafter(setup), run)
    assert len(count) == len(TOWNS)
    assert {k: v.passages for k, v in first.items()} == {k: v.passages for k, v in again.items()}


# --------------------------------------------------------------------------- the system observed


@pytest.mark.parametrize("retriever", ["dense", "bm25"])
def test_scores_are_those_that_rank_passages_however_bad_they_are(
    folder: Path, tmp_path: Path, retriever: str
) -> None:
    setup = small(folder)
    if retriever == "bm25":
        pytest.importorskip("bm25s")
        text = EXPERIMENT.replace('encoder = "hashing"\n', 'plugin = "bm25"\n')
        text = re.sub(r"encoder_options.*\n", "", text)
        (folder / "small.toml").write_text(text, encoding="utf-8")
        setup = small(folder)
    index = indexed(setup, tmp_path)
    system = AttackedSystem(setup, lambda: index, Model)
    query = setup.evaluated[3]
    texts = ["nothing in common", query.text, "nothing in common", "The harbor of town3", "?"]
    scores = system.scores(query, texts)
    poison = [Passage(id=f"p{i}", text=text) for i, text in enumerate(texts)]
    hits = index.poisoned([query], poison, len(setup.dataset.corpus) + len(texts))[0]
    ranked = {hit.passage.id: hit.score for hit in hits}
    assert scores.tolist() == [ranked[f"p{i}"] for i in range(len(texts))]
    assert scores[1] == max(scores)
    assert scores[0] == scores[2]


def test_the_victim_answers_from_the_experiments_own_pipeline(folder: Path, tmp_path: Path) -> None:
    setup = small(folder)
    index, victim, answers = indexed(setup, tmp_path), Model(lambda p, d: "an answer"), []
    query = setup.evaluated[0]
    attack = Written(
        knowledge=Knowledge(llm="query"),
        watch=lambda view: answers.append(view.ask_victim([query.text, "far from everything"])),
    )
    made = crafter(setup, index=index, victim=victim).craft(named(attack), query)
    [answer], [request] = answers, victim.requests
    assert (answer, answer.retrieved, answer.kept) == ("an answer", (True, False), None)
    poison = [Passage(id="a", text=query.text), Passage(id="b", text="far from everything")]
    context = "\n".join(h.passage.text for h in index.poisoned([query], poison, 3)[0])
    prompt = setup.template.render({"contexts": context, "question": query.text})
    assert request.messages == prompt
    assert request.sampling == setup.victims[0].sampling
    cost = made.poison.cost
    assert (cost.model_calls, cost.input_tokens, cost.encoder_forwards) == (1, 7, 2)


def test_an_attack_tuned_against_a_defense_asks_the_defended_system(
    folder: Path, tmp_path: Path
) -> None:
    setup, answers = small(folder), []
    query = setup.evaluated[0]
    attack = Written(
        knowledge=Knowledge(llm="query"),
        watch=lambda view: answers.append(view.ask_victim([query.text] * 2)),
    )
    attack.against = "score_gap"  # type: ignore[attr-defined]
    made = crafter(setup, index=indexed(setup, tmp_path), victim=Model())
    made.craft(named(attack), query)
    [answer] = answers
    assert answer.retrieved == (True, True)
    assert answer.kept in ((True, True), (False, False)), "this detector abstains or keeps all"
    attack.against = "fortress"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="tuned against 'fortress', which is no defense"):
        made.craft(named(attack), query)


def test_a_victim_that_fails_while_it_is_asked_is_an_error_not_an_answer(
    folder: Path, tmp_path: Path
) -> None:
    def fail(prompt: str, draw: int) -> str:
        raise BackendError("no answer")

    setup = small(folder)
    attack = Written(knowledge=Knowledge(llm="query"), watch=lambda v: v.ask_victim(["x"]))
    made = crafter(setup, index=indexed(setup, tmp_path), victim=Model(fail))
    with pytest.raises(BackendError, match="while the attack asked the victim: no answer"):
        made.craft(named(attack), setup.evaluated[0])


def test_what_cannot_be_opened_is_said_with_what_could(folder: Path) -> None:
    setup = small(folder)
    with pytest.raises(ConfigError, match="'hashing' gives no gradients"):
        open_encoder(setup.arms[0])
    with pytest.raises(ConfigError, match="'scripted' gives no internals"):
        open_language_model(setup.helper)
    with pytest.raises(ConfigError, match="'hashing' does not show its tokens"):
        token_counter("hashing")


def test_a_retriever_that_opens_itself_is_opened_once(folder: Path) -> None:
    setup, opened = small(folder), []

    class Opens:
        def white_box(self) -> ToyEncoder:
            opened.append(1)
            return ToyEncoder()

    arm = setup.arms[0]
    arm = replace(arm, retriever=replace(arm.retriever, instance=Opens()))
    system = AttackedSystem(replace(setup, arms=(arm,)), Model, Model)  # type: ignore[arg-type]
    assert system.encoder() is system.encoder()
    assert opened == [1]


# ---------------------------------------------------------------------------------- paraphrases


def rewording(prompt: str, draw: int) -> str:
    """Ten different rewordings, some of them twice, one of them the question itself."""
    question = re.search(r"Question: (.*)", prompt)
    assert question is not None
    return [question[1], "", f'"Wording {draw // 2} of {question[1]}"\nmore'][min(draw, 2)]


def test_the_helper_writes_ten_that_differ_and_half_of_them_become_questions(
    folder: Path,
) -> None:
    setup = small(folder, "paraphrases.evaluate=true")
    expanded = with_paraphrases(setup, Model(rewording))
    assert len(expanded.attacked) == len(TOWNS)
    assert len(expanded.evaluated) == 6 * len(TOWNS)
    seen = expanded.paraphrases["q0"]
    asked = {q.id: q for q in expanded.evaluated if expanded.parents.get(q.id) == "q0"}
    assert list(asked) == [f"q0#p{n}" for n in range(6, 11)]
    assert len({*seen, *(q.text for q in asked.values()), setup.evaluated[0].text}) == 11
    assert {q.group for q in asked.values()} == {setup.evaluated[0].group}
    target = expanded.dataset.targets["q0#p6"]
    assert (target.query_id, target.wanted) == ("q0#p6", setup.dataset.targets["q0"].wanted)


def test_without_evaluate_attackers_see_paraphrases_and_no_question_is_added(
    folder: Path,
) -> None:
    setup = small(folder, "paraphrases.evaluate=false")
    expanded = with_paraphrases(setup, Model(rewording))
    assert expanded.evaluated == setup.evaluated
    seen: list[tuple[str, ...]] = []
    attack = Written(knowledge=Knowledge(query="paraphrases"),
                     watch=lambda view: seen.append(view.paraphrases))  # fmt: skip
    crafter(expanded).craft(named(attack), expanded.evaluated[0])
    assert seen == [expanded.paraphrases["q0"]]
    assert len(seen[0]) == 5


def test_a_helper_that_repeats_itself_is_an_error_that_names_the_question(folder: Path) -> None:
    setup = small(folder, "paraphrases.evaluate=true")
    with pytest.raises(BackendError, match="wrote 1 different paraphrases of query 'q0'"):
        with_paraphrases(setup, Model(lambda prompt, draw: "always the same"))


def test_paraphrases_from_a_file_are_for_all_attacked_questions_or_refused(folder: Path) -> None:
    rows = [{"query_id": f"q{n}", "paraphrases": [f"harbor {i} of {town}" for i in range(10)]}
            for n, town in enumerate(TOWNS)]  # fmt: skip
    write_rows(folder / "p.jsonl", rows)
    setup = small(folder, "paraphrases.path=p.jsonl")
    helper = Model()
    assert with_paraphrases(setup, helper).paraphrases["q1"][0] == "harbor 0 of town1"
    assert helper.requests == []
    write_rows(folder / "p.jsonl", rows[1:])
    with pytest.raises(DataError, match=r"p\.jsonl: no paraphrases for query 'q0' \(1 of 24"):
        with_paraphrases(setup, helper)


def test_the_content_of_a_file_of_paraphrases_names_the_run_its_place_does_not(
    folder: Path,
) -> None:
    (folder / "a.jsonl").write_text("one\n", encoding="utf-8")
    (folder / "b.jsonl").write_text("one\n", encoding="utf-8")
    (folder / "c.jsonl").write_text("two\n", encoding="utf-8")
    one, two, other = (small(folder, f"paraphrases.path={n}.jsonl").run_folder() for n in "abc")
    assert one == two != other
    with pytest.raises(DataError, match="no such file"):
        small(folder, "paraphrases.path=gone.jsonl").run_folder()
    assert "paraphrases" not in small(folder).resolved()["experiment"]


# --------------------------------------------------------------------------- generation loops


def test_a_text_that_fails_verification_every_time_is_kept_and_marked(folder: Path) -> None:
    def reply(prompt: str, draw: int) -> str:
        return f"Draft {draw} for rival0." if "Write" in prompt else "I don't know"

    setup, helper = small(folder), Model(reply)
    attack = named(PoisonedRAG(source="generated", n=2, trials=3), "poisonedrag")
    made = crafter(setup, helper).craft(attack, setup.evaluated[0])
    assert [d["verified"] for d in made.poison.details] == [False, False]
    assert [d["trials"] for d in made.poison.details] == [3, 3]
    assert all("for rival0." in p.text for p in made.poison.passages)
    assert len({p.text for p in made.poison.passages}) == 2
    assert made.poison.cost.model_calls == 2 * 3 * 2


def test_the_same_loop_stops_at_the_first_text_that_convinces(folder: Path) -> None:
    def reply(prompt: str, draw: int) -> str:
        return f"Draft {draw} for rival0." if "Write" in prompt else "rival0"

    setup = small(folder)
    attack = named(PoisonedRAG(source="generated", n=2, trials=3), "poisonedrag")
    made = crafter(setup, Model(reply)).craft(attack, setup.evaluated[0])
    assert [(d["verified"], d["trials"]) for d in made.poison.details] == [(True, 1)] * 2


# ----------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("order", "sequential", "options"),
    [
        (None, False, {}),
        ("simultaneous", False, {}),
        ("sequential", True, {}),
        ("suffix", False, {"order": "suffix"}),
    ],
)
def test_the_order_of_injection_is_no_option_of_the_attack_and_its_own_order_is(
    order: str | None, sequential: bool, options: dict[str, str]
) -> None:
    part = AttackPart.model_validate(
        {"plugin": "poisonedrag"} | ({"order": order} if order else {})
    )
    assert (part.sequential, part.options) == (sequential, options)


def test_a_limit_of_words_is_the_attacks_own_where_it_has_such_an_option(folder: Path) -> None:
    own = small(folder, 'attack=[{plugin = "poisonedrag", max_words = 9}]').attacks[0]
    assert (own.max_words, own.instance.max_words) == (None, 9)
    ours = small(folder, 'attack=[{plugin = "corruptrag_as", max_words = 9}]').attacks[0]
    assert (ours.max_words, ours.options) == (9, {})
    for wrong in ("0", "true", '"many"'):
        with pytest.raises(ConfigError, match="max_words must be a whole number from 1"):
            small(folder, f'attack=[{{plugin = "corruptrag_as", max_words = {wrong}}}]')


def test_unknown_keys_of_paraphrases_are_refused() -> None:
    tree = {"name": "x", "dataset": "beir", "generator": "scripted", "paraphrases": {"file": "p"}}
    with pytest.raises(ConfigError, match=r"unknown key 'paraphrases\.file'"):
        parse(tree)


def test_the_command_takes_an_attack_of_the_experiment_with_its_options(folder: Path) -> None:
    text = EXPERIMENT + (
        '[[attack]]\nplugin = "poisonedrag"\n'
        '[[attack]]\nplugin = "corruptrag_as"\nlabel = "outdated"\nbrackets = false\n'
        'order = "sequential"\n'
    )
    (folder / "small.toml").write_text(text, encoding="utf-8")
    source = folder / "small.toml"
    experiment, title = attack_experiment(source, "outdated", ["attack.separator=/", "seed=7"])
    assert title == "outdated"
    assert [part.title for part in experiment.file.attack] == ["poisonedrag", "outdated"]
    assert experiment.file.attack[-1].options == {"brackets": False, "separator": "/"}
    assert experiment.file.seed == 7
    alone, title = attack_experiment(source, "corruptrag_as")
    assert [part.title for part in alone.file.attack] == ["corruptrag_as"]
    assert alone.file.attack[0].options == {}
    plain, _ = attack_experiment(source, "poisonedrag", ["attack.0.n=2"])
    assert plain.file.attack[0].options == {"n": 2}, "a number is a place in the list"


def test_a_folder_of_data_will_do_for_an_experiment(folder: Path) -> None:
    experiment, _ = attack_experiment(folder / "data", "poisonedrag", ["budgets=[2]"])
    assert experiment.file.budgets == (2,)
    assert len(set_up_data(experiment)) == len(TOWNS)


def set_up_data(experiment: Any) -> tuple[Query, ...]:
    from ragassay.experiments.setup import load_dataset

    return load_dataset(experiment).queries
