"""Drawing a packet: what is in the population, what is drawn, what is sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay import canon
from ragassay.audit.adjudicate import apply
from ragassay.audit.labels import LabelBook
from ragassay.audit.packet import FIELDS, Packet, Sample, read_key, read_packet, write_packet
from ragassay.audit.sampling import RANDOM, population, sample
from ragassay.errors import ConfigError, DataError, StoreError
from ragassay.store import RunFolder
from ragassay.types import Query, Sampling, ScoreRecord, Target, TrialRecord, TrialSpec

ATTACKS = (("", 0), ("att", 1))
DEFENSES = ("none", "shield")


def build(folder: Path, *, queries: int = 40, headline: str = "tokens") -> RunFolder:
    """A run in which query n is answered by "harbor n" unless the attack gets through.

    Undefended and poisoned, every answer endorses the target; the shield prevents it for even n,
    declines for n = 1 and fails for n = 3. Clean answers are equal with and without the shield.
    Query 0 has neither target nor references; query 5 a target without a letter.
    """
    store = RunFolder(folder)
    with store.writer():
        store.write_text("resolved.json", canon.dumps({"headline": headline}))
        for n in range(queries):
            query = Query(id=f"q{n}", text=f"Who built harbor {n}?", group=f"g{n % 5}")
            wanted = ("rivals", "the rival guild") if n else ()
            target = Target(
                query_id=query.id,
                wanted=("?!",) if n == 5 else wanted,
                references=("masons",) if n else (),
            )
            store.append("queries", query.id, {"query": query, "target": target})
            for attack, budget in ATTACKS:
                for defense in DEFENSES:
                    _trial(store, query, target, n, attack, budget, defense)
    return store


def _trial(
    store: RunFolder, query: Query, target: Target, n: int, attack: str, budget: int, defense: str
) -> None:
    spec = TrialSpec(
        protocol="aligned/1", dataset="d", query_id=query.id, question=query.text, attack=attack,
        budget=budget, poison="", retriever="r", defense=defense, defense_label=defense,
        prompt="p", generator="g", sampling=Sampling(), seed=1, setting="a" if n < 20 else "b",
    )  # fmt: skip
    key = canon.digest(spec)
    through = bool(budget) and (defense == "none" or n % 2 == 1)
    shielded = defense == "shield" and budget
    if shielded and n == 3:
        store.append("trials", key, TrialRecord(key=key, spec=spec, status="failed", error="x"))
        return
    declined = bool(shielded and n == 1)
    answer = "" if declined else f"The {'rivals' if through else 'masons'} built harbor {n}."
    record = TrialRecord(key=key, spec=spec, status="done", answer=answer, declined=declined)
    store.append("trials", key, record)
    applies = bool(target.wanted) and n != 5
    doubt = shielded and n == 7
    for scorer in ("tokens", "endorse"):
        wrong = scorer == "endorse" and n == 9
        score = ScoreRecord(
            trial_key=key, scorer=scorer, version="1",
            target_positive=None if not applies or (doubt and scorer == "endorse")
            else through != wrong,
            correct=None if not target.references else not through, abstained=declined,
            uncertain=("target_positive",) if doubt and scorer == "endorse" else (),
        )  # fmt: skip
        store.append("scores", key, score)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return build(tmp_path / "run")


def draw(run: RunFolder, **options: Any) -> Sample:
    return sample(run, **{"size": 30, "seed": 3, **options})


def written(run: RunFolder, out: Path, **options: Any) -> Packet:
    return write_packet(draw(run, **options), out)


# --------------------------------------------------------------------------- the population


def test_equal_answers_are_one_unit_with_all_their_trials(run: RunFolder) -> None:
    found = population(run)
    # Two distinct answers a query: clean ones are shared, the shield repeats one or the other.
    assert len(found.items) == 80
    assert sum(len(trials) for trials in found.trials.values()) == 160 - 2
    assert (found.declined, found.unanswered) == (1, 1)
    for key, item in found.items.items():
        assert key == item.id
        assert len({trial.answer for trial in found.trials[key]}) == 1


def test_targets_and_references_without_a_letter_or_digit_are_not_applicable(
    run: RunFolder,
) -> None:
    by_question = {item.question: item for item in population(run).items.values()}
    nothing = by_question["Who built harbor 0?"]
    assert (nothing.target, nothing.references) == (None, ())
    assert nothing.allowed("target_endorsed") == ("not_applicable",)
    assert nothing.allowed("reference_correct") == ("not_applicable",)
    assert by_question["Who built harbor 5?"].target is None
    usual = by_question["Who built harbor 2?"]
    assert (usual.target, usual.target_aliases) == ("rivals", ("the rival guild",))


def test_a_run_without_answers_cannot_be_sampled(tmp_path: Path) -> None:
    store = build(tmp_path / "empty", queries=0)
    with pytest.raises(DataError, match="no answers to label"):
        draw(store)


# ------------------------------------------------------------------------------- the strata


def members(run: RunFolder, stratum: str, **options: Any) -> set[str]:
    """Everything is drawn, so that the key lists every member."""
    drawn = draw(run, size=1000, strata=(stratum,), **options)
    return {
        f"{item.question} {item.answer}"
        for item in drawn.packet.items
        if stratum in drawn.key.items[item.id].strata
    }


def test_flips_are_both_answers_of_matched_conditions_with_different_labels(
    run: RunFolder,
) -> None:
    found = members(run, "flips")
    # Every query with a target flips from clean to poisoned without defense.
    assert len(found) == 2 * 38
    assert not any("harbor 0?" in each or "harbor 5?" in each for each in found)


def test_disagree_and_uncertain_hold_what_the_scorers_say(run: RunFolder) -> None:
    disagree, uncertain = members(run, "disagree"), members(run, "uncertain")
    assert disagree == {
        "Who built harbor 9? The masons built harbor 9.",
        "Who built harbor 9? The rivals built harbor 9.",
    }
    assert uncertain == {"Who built harbor 7? The rivals built harbor 7."}
    assert members(run, "disagree", scorers=["tokens"]) == set()


def test_method_and_setting_select_by_the_trials(run: RunFolder) -> None:
    assert len(members(run, "setting:a")) == 40
    shield = members(run, "method:shield")
    # Even: the clean answer twice; odd: both answers, without those of queries 1 and 3.
    assert len(shield) == 20 + 2 * 20 - 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strata": ("method:sheild",)}, "did you mean 'shield'"),
        ({"strata": ("flip",)}, "did you mean 'flips'"),
        ({"strata": ("flips", "flips")}, "named twice"),
        ({"scorers": ["token"]}, "did you mean 'tokens'"),
        ({"size": 0}, "need at least 1"),
        ({"random_share": 0.0}, "without a random part"),
        ({"random_share": 1.5}, "at most 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    run: RunFolder, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        draw(run, **options)


# --------------------------------------------------------------------------------- the draw


def test_every_part_draws_what_the_design_says(run: RunFolder) -> None:
    drawn = draw(run, strata=("flips", "uncertain", "method:shield"))
    counts = {RANDOM: 0} | {part.name: 0 for part in drawn.packet.design.strata}
    for entry in drawn.key.items.values():
        assert entry.drawn_by
        assert set(entry.drawn_by) - {RANDOM} <= set(entry.strata)
        for part in entry.drawn_by:
            counts[part] += 1
    assert counts[RANDOM] == drawn.packet.design.random == 9
    for part in drawn.packet.design.strata:
        assert counts[part.name] == part.drawn
    assert abs(len(drawn.packet.items) - 30) <= 4


def test_inclusion_probabilities_are_how_often_an_answer_is_drawn(run: RunFolder) -> None:
    drawn: dict[str, int] = {}
    chances: dict[str, float | None] = {}
    times = 200
    for seed in range(times):
        each = draw(run, seed=seed, size=20)
        for key, entry in each.key.items.items():
            drawn[key] = drawn.get(key, 0) + 1
            chances[key] = entry.inclusion
    assert len(drawn) == 80
    for key, count in drawn.items():
        chance = chances[key]
        assert chance is not None
        assert abs(count / times - chance) < 4.5 * np.sqrt(chance * (1 - chance) / times) + 1e-9


def test_equal_seeds_draw_equal_bytes_and_others_differ(run: RunFolder, tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        written(run, tmp_path / name, seed=seed, name="same")
    for file in ("packet.json", "items.jsonl", "key.json"):
        one, two, three = ((tmp_path / n / file).read_bytes() for n in ("one", "two", "three"))
        assert one == two
        assert one != three


def test_a_population_smaller_than_the_size_is_taken_whole(run: RunFolder) -> None:
    drawn = draw(run, size=500)
    assert len(drawn.packet.items) == drawn.packet.answers == 80
    assert {entry.inclusion for entry in drawn.key.items.values()} == {1.0}


def test_the_order_of_items_does_not_tell_what_drew_them(run: RunFolder) -> None:
    drawn = draw(run, size=40, strata=("uncertain", "flips"))
    ranks = [
        n
        for n, item in enumerate(drawn.packet.items)
        if RANDOM in drawn.key.items[item.id].drawn_by
    ]
    assert ranks != list(range(len(ranks)))
    assert 0.2 < np.mean(ranks) / len(drawn.packet.items) < 0.8
    assert [item.id for item in drawn.packet.items] != sorted(drawn.key.items)


# ------------------------------------------------------------------------------- the folder


def test_a_packet_reads_back_and_its_key_holds_the_labels(run: RunFolder, tmp_path: Path) -> None:
    drawn = draw(run)
    packet = write_packet(drawn, tmp_path / "p")
    assert packet == read_packet(tmp_path / "p")
    assert packet.items == drawn.packet.items
    key = read_key(tmp_path / "p")
    assert key == drawn.key
    assert key.scorers == {"endorse": "1", "tokens": "1"}
    for item in packet.items:
        labels = key.items[item.id].labels["tokens"]
        expected = "yes" if "rivals" in item.answer else "no"
        assert labels["target_endorsed"] == (expected if item.target else "not_applicable")
        assert labels["abstains"] == "no"


def test_nothing_that_an_annotator_reads_tells_where_an_answer_comes_from(
    run: RunFolder, tmp_path: Path
) -> None:
    written(run, tmp_path / "p", strata=("method:shield", "flips"), size=60)
    for line in (tmp_path / "p" / "items.jsonl").read_text(encoding="utf-8").splitlines():
        assert set(json.loads(line)) == {
            "id", "question", "target", "target_aliases", "references", "answer",
        }  # fmt: skip
        for secret in ("shield", "att", "tokens", "endorse", "flips", "method"):
            assert secret not in line.replace("masons", "").replace("rivals", "")


def test_reading_a_packet_never_opens_the_key(run: RunFolder, tmp_path: Path) -> None:
    written(run, tmp_path / "p")
    (tmp_path / "p" / "key.json").unlink()
    assert read_packet(tmp_path / "p").items
    with pytest.raises(StoreError, match=r"has no key\.json"):
        read_key(tmp_path / "p")


def test_a_packet_is_not_written_over_another(run: RunFolder, tmp_path: Path) -> None:
    written(run, tmp_path / "p")
    with pytest.raises(StoreError, match="is not empty"):
        written(run, tmp_path / "p")


def test_texts_with_line_separators_and_lone_surrogates_survive(
    run: RunFolder, tmp_path: Path
) -> None:
    drawn = draw(run, size=5)
    first = drawn.packet.items[0]
    odd = type(first)(id=first.id, question="a\u2028b\x85c", target="\ud800", answer="<script>\n")
    packet = Packet(
        name="odd", seed=1, answers=1, trials=1, design=drawn.packet.design, items=(odd,)
    )
    key = type(drawn.key)(items={first.id: drawn.key.items[first.id]})
    assert write_packet(Sample(packet=packet, key=key), tmp_path / "p").items == (odd,)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("items.jsonl", lambda t: t.replace("masons", "tailors"), "SHA-256 differs"),
        ("packet.json", lambda t: t.replace('"v":1', '"v":2'), "version 2"),
        ("packet.json", lambda t: t[:-20], "cannot be read"),
        ("packet.json", lambda t: t.replace("audit_packet", "other"), "of kind 'audit_packet'"),
        ("packet.json", lambda t: t.replace('"design"', '"x"'), "damaged packet"),
    ],
)
def test_a_changed_packet_is_refused(
    run: RunFolder, tmp_path: Path, file: str, change: Any, said: str
) -> None:
    written(run, tmp_path / "p")
    path = tmp_path / "p" / file
    before = path.read_text(encoding="utf-8")
    path.write_text(change(before), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != before
    with pytest.raises(StoreError, match=said):
        read_packet(tmp_path / "p")


def test_the_key_of_another_packet_is_refused(run: RunFolder, tmp_path: Path) -> None:
    written(run, tmp_path / "p")
    written(run, tmp_path / "other", seed=9)
    (tmp_path / "p" / "key.json").write_bytes((tmp_path / "other" / "key.json").read_bytes())
    with pytest.raises(StoreError, match="belongs to another packet"):
        read_key(tmp_path / "p")


def test_a_folder_that_is_no_packet_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is it an audit packet"):
        read_packet(tmp_path)


def test_no_stream_is_read_whole_and_batches_change_nothing(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(run, tmp_path / "before")
    whole = run.trials()
    monkeypatch.setattr("ragassay.store.columns._BATCH", 3)
    for name in ("trials", "scores"):
        monkeypatch.setattr(RunFolder, name, None)
    packet = written(run, tmp_path / "after")
    assert packet.items == before.items
    assert read_key(tmp_path / "after") == read_key(tmp_path / "before")
    with LabelBook(packet, "ada") as book:
        for item in packet.items:
            book.append(item.id, {name: item.allowed(name)[0] for name in FIELDS})
    done = apply(tmp_path / "after", run)
    given = {key for each in read_key(tmp_path / "after").items.values() for key in each.trials}
    declined = {key for key, trial in whole.items() if trial.declined}
    assert {body["trial_key"] for _, body in run.read("scores") if body["scorer"] == "human"} == (
        given | declined
    )
    assert (done.written, done.declined) == (len(given | declined), 1)
    assert apply(tmp_path / "after", run).written == 0
