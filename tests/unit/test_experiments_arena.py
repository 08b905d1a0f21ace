"""Parts of the arena protocol that need no model: exact means, contexts, folds, settings."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from ragassay.arena.expectation import expected_round_figures
from ragassay.arena.figures import Play
from ragassay.arena.outcomes import Judgment
from ragassay.arena.pool import Documents, QueryPool
from ragassay.arena.retrieval import merge, poison_figures
from ragassay.arena.schedule import Design
from ragassay.config import ArenaPart, parse
from ragassay.errors import ConfigError
from ragassay.experiments.arena_contexts import Contexts
from ragassay.experiments.arena_exact import exact_figures
from ragassay.experiments.arena_pools import Pools, poison_id
from ragassay.experiments.arena_prediction import prediction
from ragassay.experiments.arena_rounds import Drawn, Scene, draw, singles
from ragassay.types import Passage

K = 3
STATISTICS = {"draws": 200, "confidence": 0.95}


def pool(number: int) -> QueryPool:
    rng = np.random.default_rng(number)

    def some(name: str, position: object) -> Documents:
        scores = tuple(sorted(map(float, rng.normal(0.3 * len(name), 1, size=2)), reverse=True))
        return Documents(tuple(f"{name} {position} {i} of {number}" for i in range(2)), scores)

    names = ("a", "bb", "ccc", "dddd")
    sets = {name: {p: some(name, p) for p in range(3)} for name in names}
    sets["free"] = {None: some("free", None)}
    clean = Documents(tuple(f"c{number}-{i}" for i in range(K)), (2.0, 1.0, 0.0))
    return QueryPool(f"q{number}", "?", ("right",), ("x", "y", "z"), clean, sets)


POOLS = [pool(number) for number in range(6)]


def opened(pools: list[QueryPool]) -> Pools:
    poison = {
        (p.query_id, text): Passage(id="poison-" + text.replace(" ", "-"), text=text)
        for p in pools
        for sets in p.documents.values()
        for documents in sets.values()
        for text in documents.texts
    }
    clean = {i: Passage(id=i, text=f"text of {i}") for p in pools for i in p.clean.texts}
    return Pools(by_query={p.query_id: p for p in pools}, poison=poison, clean=clean)


@pytest.mark.parametrize("sizes", [(), (2, 3)])
def test_exact_means_are_those_of_the_plays_in_the_limit(sizes: tuple[int, ...]) -> None:
    part = ArenaPart(attackers=sizes, answers=3)
    told = exact_figures({"s": (opened(POOLS), K)}, part, seed=1)["scenes"]["s"]["rounds"]
    seen: dict[str, list[float]] = defaultdict(list)
    by_id = {p.query_id: p for p in POOLS}
    for index in range(1_500):
        drawn = draw(index, POOLS, part, 1)
        for assignment in drawn.assignments:
            here = by_id[drawn.query_id]
            hits = merge(here.clean, here.injected(assignment), K).hits
            for name, count in hits.items():
                seen[name].append(poison_figures(count, 2, K).f1)
    assert set(seen) == set(told)
    for name, values in seen.items():
        assert told[name]["f1"] == pytest.approx(np.mean(values), abs=0.05)


def test_rounds_that_weigh_alike_do_not_depend_on_the_assignment() -> None:
    means = [
        expected_round_figures(POOLS, Design(mode=mode), K) for mode in ("latin", "full", "random")
    ]
    assert means[0] == means[1] == means[2]
    by_play = [
        expected_round_figures(POOLS, Design(mode=mode), K, by_play=True)
        for mode in ("latin", "random")
    ]
    assert by_play[0]["a"].figures != by_play[1]["a"].figures
    assert by_play[1] == means[2]


def test_singles_give_all_attackers_the_same_answers() -> None:
    drawn = list(singles(POOLS, ArenaPart(single=2), seed=3))
    for each in POOLS:
        dealt = [d.assignments[0] for d in drawn if d.query_id == each.query_id]
        wanted = {name: {a[name] for a in dealt if name in a} for name in each.participants}
        assert len({frozenset(v) for name, v in wanted.items() if name != "free"}) == 1
        assert wanted["free"] == {None}
    assert [d.index for d in drawn] == list(range(len(drawn)))


def test_equal_contexts_have_one_name_and_the_clean_one_has_none() -> None:
    contexts = Contexts(scene=Scene(setting="", budget=2), pools=opened(POOLS), k=K)
    part = ArenaPart(answers=3)
    names: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for drawn in (*singles(POOLS, part, 0), *(draw(i, POOLS, part, 0) for i in range(100))):
        for play in contexts.play(drawn):
            hits = contexts.known[drawn.query_id, play.context]
            texts = tuple(hit.passage.text for hit in hits)
            names[drawn.query_id, texts].add(play.context)
            poison = [hit for hit in hits if hit.passage.id.startswith("poison-")]
            assert sum(play.hits.values()) == len(poison)
            assert (play.context == "") == (not poison)
            assert [hit.rank for hit in hits] == list(range(1, K + 1))
            for attacker, name in play.without.items():
                left = contexts.known[drawn.query_id, name]
                assert not any(attacker in hit.passage.text for hit in left)
    assert all(len(found) == 1 for found in names.values())


def test_the_content_study_has_one_document_of_each_attacker() -> None:
    scene = Scene(setting="", budget=2, context="content")
    contexts = Contexts(scene=scene, pools=opened(POOLS), k=K)
    drawn = Drawn(
        kind="round", index=0, query_id="q1", assignments=({"a": 0, "bb": 1, "free": None},)
    )
    play = contexts.play(drawn)[0]
    best = [
        max(zip(d.scores, d.texts, strict=True))[1]
        for d in POOLS[1].injected({"a": 0, "bb": 1, "free": None}).values()
    ]
    hits = contexts.known["q1", play.context]
    assert sorted(hit.passage.text for hit in hits) == sorted(best)
    assert play.hits == play.injected == {"a": 1, "bb": 1, "free": 1}


def test_a_text_that_two_attackers_inject_stands_twice_under_two_ids() -> None:
    clean = Documents(("c0", "c1", "c2"), (0.3, 0.2, 0.1))
    same = Documents(("same",), (1.0,))
    twins = QueryPool("q", "?", ("r",), ("x", "y"), clean, {"a": {0: same}, "b": {1: same}})
    contexts = Contexts(scene=Scene(setting="", budget=1), pools=opened([twins]), k=K)
    drawn = Drawn(kind="round", index=0, query_id="q", assignments=({"a": 0, "b": 1},))
    play = contexts.play(drawn)[0]
    ids = [hit.passage.id for hit in contexts.known["q", play.context]]
    assert ids == ["poison-same", "poison-same~2", "c0"]
    assert play.hits == {"a": 1, "b": 1}


def test_a_passage_is_known_by_question_and_text() -> None:
    one = Passage(id="1", text="same")
    assert poison_id("q", one) == poison_id("q", Passage(id="2", text="same"))
    assert poison_id("q", one) != poison_id("p", one)


def plays(winner: str, names: tuple[str, ...], clusters: range) -> list[Play]:
    losers = tuple(name for name in names if name != winner)
    return [
        Play(round=i, query_id=f"q{i}", judgment=Judgment((winner,), losers), k=1) for i in clusters
    ]


def test_strength_predicts_what_success_alone_does_not() -> None:
    among = plays("strong", ("strong", "weak"), range(20))
    alone = [
        Play(round=i, query_id=f"q{i}", judgment=Judgment(("weak",), ()), k=1) for i in range(20)
    ] + [Play(round=i, query_id=f"q{i}", judgment=Judgment((), ("strong",)), k=1)
         for i in range(20)]  # fmt: skip
    told = prediction(among, alone, (), 0, STATISTICS)
    assert (told["theta"]["value"], told["s_asr"]["value"], told["chance"]) == (1.0, 0.0, 0.5)
    assert told["difference"]["low"] == 1.0
    assert (told["n"], told["queries"]) == (20, 20)


def test_a_prediction_never_sees_the_question_that_it_predicts() -> None:
    among = plays("a", ("a", "b"), range(1))  # one question: nothing is left to learn from
    assert prediction(among, among, (), 0, STATISTICS)["n"] == 0


@pytest.mark.parametrize(
    ("arena", "message"),
    [
        ({"draws": 2}, "'draws' is for assignment = 'random'"),
        ({"only": ["gaslite"]}, "set 'released'"),
        ({"attackers": [2, 2]}, "attackers must be distinct"),
        ({"released": "x", "studies": ["order"]}, "released documents are fixed"),
        ({"attackers": [1]}, "greater than or equal to 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(arena: dict[str, object], message: str) -> None:
    tree = {"name": "n", "protocol": "arena", "dataset": "atlas", "generator": "smollm2",
            "attack": ["poisonedrag", "corruptrag_as"], "arena": arena}  # fmt: skip
    with pytest.raises(ConfigError, match=message):
        parse(tree)


def test_one_attack_is_no_arena_and_defaults_hold_without_a_table() -> None:
    tree = {"name": "n", "protocol": "arena", "dataset": "atlas", "generator": "smollm2"}
    with pytest.raises(ConfigError, match="at least two"):
        parse(tree)
    assert parse({**tree, "attack": ["poisonedrag", "hijack"]}).arena == ArenaPart()


def test_the_released_questions_are_a_data_set(shared_data: Path) -> None:
    from ragassay.data.poisonarena import PoisonArena

    dataset = PoisonArena(path=str(shared_data), limit=30).load()
    assert (len(dataset.corpus), len(dataset.queries)) == (495, 100)
    attacked = [query for query in dataset.queries if dataset.targets[query.id].wanted]
    assert len(attacked) == len({query.group for query in attacked}) == 30


def test_the_example_on_released_documents_plans_its_distinct_prompts(shared_data: Path) -> None:
    from ragassay.experiments.arena_plan import estimate
    from ragassay.experiments.setup import load_experiment, set_up

    example = Path(__file__).resolve().parents[2] / "examples" / "arena-nq.toml"
    folder = shared_data / "poisonarena"
    chosen = [f"dataset.path={folder}", f"arena.released={folder}"]
    told = estimate(set_up(load_experiment(example, chosen)))
    assert told.trials == 2_029
    assert told.calls == {"none": 2_029}
