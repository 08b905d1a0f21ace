"""From labels to figures: agreement, population rates, adjudication, and scores of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ragassay import canon
from ragassay.audit.adjudicate import adjudicate, apply, read_decisions, settle, undecided
from ragassay.audit.agree import agree
from ragassay.audit.labels import LabelBook
from ragassay.audit.packet import (
    Design,
    Item,
    Key,
    KeyEntry,
    Packet,
    Part,
    Sample,
    read_packet,
    write_packet,
)
from ragassay.audit.text import render_text
from ragassay.cli.audit import audit_app
from ragassay.errors import ConfigError, DataError, NotEstimable, StoreError
from ragassay.store import RunFolder
from ragassay.types import Query, Sampling, ScoreRecord, Target, TrialRecord, TrialSpec

YES, NO, UN, NA = "yes", "no", "uncertain", "not_applicable"


def said(target: str, correct: str = NO, abstains: str = NO) -> dict[str, str]:
    return {"target_endorsed": target, "reference_correct": correct, "abstains": abstains}


def packet_of(
    folder: Path, judge: list[str | None], *, known: bool = True, population: int = 100
) -> Packet:
    """Items i0, i1, ...: half of them drawn at random, half by the stratum "flips"."""
    n = len(judge)
    items = tuple(
        Item(
            id=f"i{k}", question=f"question {k // 2}", answer=f"answer {k}",
            target=None if label == NA else "rivals", references=("masons",),
        )
        for k, label in enumerate(judge)
    )  # fmt: skip
    design = Design(
        random=n // 2,
        strata=(Part(name="flips", size=20 if known else None, drawn=n // 2 if known else None),),
        known=known,
    )
    entries = {
        f"i{k}": KeyEntry(
            strata=("flips",) if k % 2 else (), drawn_by=("flips",) if k % 2 else ("random",),
            inclusion=0.5, trials=(f"t{k}", f"u{k}"),
            labels={"judge": {"target_endorsed": label, "reference_correct": NO, "abstains": NO}},
        )
        for k, label in enumerate(judge)
    }  # fmt: skip
    packet = Packet(
        name="p", seed=1, answers=population, trials=2 * population, design=design, items=items
    )
    key = Key(run={"name": "run"}, scorers={"judge": "1"}, items=entries)
    return write_packet(Sample(packet=packet, key=key), folder)


def label(packet: Packet, annotator: str, labels: dict[int, dict[str, str]]) -> None:
    with LabelBook(packet, annotator) as book:
        for n, each in labels.items():
            book.append(f"i{n}", each)


def entry(found: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    [match] = [each for each in found if all(each[k] == v for k, v in wanted.items())]
    return match


# ---------------------------------------------------------------------------------- agreement

JUDGE = [YES, YES, NO, NO, UN, NO, NA, None, YES, NO]
HUMAN = [YES, NO, NO, NO, NO, NO, NA, YES, YES, YES]


@pytest.fixture
def audited(tmp_path: Path) -> Packet:
    packet = packet_of(tmp_path / "p", JUDGE)
    label(packet, "ann", {n: said(each) for n, each in enumerate(HUMAN)})
    return packet


def test_a_person_and_a_scorer_are_compared_by_field(audited: Packet) -> None:
    found = agree(audited.folder(), draws=500)
    target = entry(found["scorers"], human="ann", scorer="judge", field="target_endorsed")
    assert (target["n"], target["unscored"], target["both_not_applicable"]) == (9, 1, 1)
    assert (target["overall"]["count"], target["overall"]["n"]) == (6, 9)
    assert (target["decisive"]["count"], target["decisive"]["n"]) == (5, 7)
    assert target["uncertain"] == [0, 1]
    assert target["confusion"]["table"] == ((2, 1, 0), (1, 3, 1), (0, 0, 0))
    assert target["kappa"]["value"] == pytest.approx((5 / 7 - 25 / 49) / (24 / 49))
    assert target["kappa"]["low"] < target["kappa"]["value"] < target["kappa"]["high"]
    assert target["overall"]["low"] < 6 / 9 < target["overall"]["high"]
    correct = entry(found["scorers"], field="reference_correct")
    assert correct["overall"]["rate"] == 1
    assert correct["kappa"]["value"] is None
    assert correct["kappa"]["reason"] == "both always give the same label"


def test_strata_are_compared_apart(audited: Packet) -> None:
    target = entry(agree(audited.folder(), draws=100)["scorers"], field="target_endorsed")
    assert set(target["strata"]) == {"random", "flips"}
    assert (target["strata"]["random"]["n"], target["strata"]["flips"]["n"]) == (5, 4)
    assert target["strata"]["random"]["overall"]["count"] == 4
    assert target["strata"]["flips"]["overall"]["count"] == 2


def test_population_figures_weigh_what_was_oversampled_down(audited: Packet) -> None:
    found = agree(audited.folder(), draws=100)
    target = entry(found["population"], human="ann", field="target_endorsed")
    assert target["sample"] == {YES: 4, NO: 5, UN: 0, NA: 1}
    # Random part 5 of 100, flips 5 of 20: pi = 0.05 and 1 - 0.95 * 0.75.
    light, heavy = 1 / (1 - 0.95 * 0.75), 1 / 0.05
    yes = (2 * heavy + 2 * light) / (4 * heavy + 5 * light)
    assert target["answers"][YES]["value"] == pytest.approx(yes)
    assert target["answers"][YES]["n"] == 9
    assert target["trials"][YES]["value"] == pytest.approx(yes)
    assert target["answers"][YES]["low"] < yes < target["answers"][YES]["high"]
    against = entry(found["scorers"], field="target_endorsed")["population"]["answers"]
    # Scored: all but i7. Overall agreement: i0, i2, i6, i8 heavy; i3, i5 light.
    expected = (4 * heavy + 2 * light) / (5 * heavy + 4 * light)
    assert against["overall"]["value"] == pytest.approx(expected)
    assert against["kappa"]["low"] <= against["kappa"]["value"] <= against["kappa"]["high"]


def test_a_packet_labeled_in_part_estimates_from_what_is_labeled(tmp_path: Path) -> None:
    packet = packet_of(tmp_path / "p", JUDGE)
    label(packet, "ann", {n: said(HUMAN[n]) for n in (0, 1, 2)})
    found = agree(packet.folder(), draws=100)
    assert found["annotators"]["ann"] == {"labeled": 3, "of": 10, "comments": 0}
    assert entry(found["population"], field="target_endorsed")["answers"][YES]["n"] == 3


def test_an_unknown_design_is_estimated_from_the_random_part_alone(tmp_path: Path) -> None:
    packet = packet_of(tmp_path / "p", JUDGE, known=False)
    label(packet, "ann", {n: said(each) for n, each in enumerate(HUMAN)})
    target = entry(agree(packet.folder(), draws=100)["population"], field="target_endorsed")
    assert "random part alone" in target["reason"]
    assert target["answers"][YES]["value"] == pytest.approx(2 / 4)  # i0, i2, i4, i8; i6 is n/a


def test_too_few_labels_are_not_estimable_and_say_why(tmp_path: Path) -> None:
    packet = packet_of(tmp_path / "p", JUDGE)
    label(packet, "ann", {0: said(YES)})
    found = agree(packet.folder(), draws=100)
    target = entry(found["scorers"], field="target_endorsed")
    assert target["kappa"]["value"] is None
    assert target["population"] == {
        "answers": None, "trials": None,
        "reason": "fewer than two items of the random design are labeled",
    }  # fmt: skip
    alpha = entry(found["between"]["alpha"], field="abstains")
    assert (alpha["value"], alpha["reason"]) == (None, "no item has two labels")
    assert "not estimable" in render_text(found)


def test_nobody_labeled_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    packet = packet_of(tmp_path / "p", JUDGE)
    with pytest.raises(NotEstimable, match="ragassay audit serve"):
        agree(packet.folder())


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"confidence": 0.0}, {"draws": 0}])
def test_impossible_settings_are_refused(audited: Packet, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="need 0 < confidence < 1"):
        agree(audited.folder(), **options)


def test_the_result_is_plain_json_and_repeats(audited: Packet) -> None:
    first, second = (agree(audited.folder(), draws=200) for _ in range(2))
    assert canon.dumps(first) == canon.dumps(second)
    assert json.loads(json.dumps(first, allow_nan=False))["kind"] == "audit_agreement"


# ------------------------------------------------------------------------------ several people


@pytest.fixture
def three(tmp_path: Path) -> Packet:
    """Ann and bo differ on i1 and i3; cy labeled four items only."""
    packet = packet_of(tmp_path / "p", JUDGE)
    label(packet, "ann", {n: said(each) for n, each in enumerate(HUMAN)})
    other = {**dict(enumerate(HUMAN)), 1: YES, 3: UN}
    label(packet, "bo", {n: said(each) for n, each in other.items()})
    label(packet, "cy", {n: said(HUMAN[n]) for n in range(4)})
    return packet


def test_annotators_are_compared_in_pairs_and_together(three: Packet) -> None:
    between = agree(three.folder(), draws=200)["between"]
    pair = entry(between["pairs"], annotators=["ann", "bo"], field="target_endorsed")
    assert (pair["overall"]["count"], pair["overall"]["n"]) == (8, 10)
    assert entry(between["pairs"], annotators=["ann", "cy"], field="abstains")["n"] == 4
    alpha = entry(between["alpha"], field="target_endorsed")
    assert (alpha["annotators"], alpha["n"]) == (3, 9)  # i6 is not applicable
    assert 0 < alpha["value"] < 1
    assert alpha["low"] <= alpha["value"] <= alpha["high"]


def test_the_consensus_is_a_voice_of_its_own_once_it_is_settled(three: Packet) -> None:
    found = agree(three.folder(), draws=100)
    assert found["settled"] == {"items": 8, "open": 2, "adjudicated": 0}
    before = entry(found["population"], human="(consensus)", field="target_endorsed")
    assert before["reason"] == "2 disagreements are open; adjudicate them first"
    assert before["answers"] is None
    assert entry(found["population"], human="(consensus)", field="abstains")["answers"]
    adjudicate(three.folder(), {f"i{n}": {"target_endorsed": NO} for n in (1, 3)}, "dee")
    after = agree(three.folder(), draws=100)
    assert after["settled"] == {"items": 10, "open": 0, "adjudicated": 2}
    consensus = entry(after["scorers"], human="(consensus)", field="target_endorsed")
    assert consensus["overall"]["count"] == 6


def test_disagreements_are_listed_with_all_that_was_said(three: Packet) -> None:
    found = agree(three.folder(), draws=100)["disagreements"]
    items = {(each["item"], each["field"]) for each in found}
    assert items == {(f"i{n}", "target_endorsed") for n in (1, 3, 4, 9)}
    first = entry(found, item="i1")
    assert first["annotators"] == {"ann": NO, "bo": YES, "cy": NO}
    assert (first["settled"], first["scorers"]) == (None, {"judge": YES})
    assert (first["question"], first["answer"]) == ("question 0", "answer 1")


def test_the_text_shows_every_part_and_cannot_steer_the_terminal(three: Packet) -> None:
    result = agree(three.folder(), draws=100)
    result["disagreements"][0]["answer"] = "\x1b[2J\u202eevil\nline"
    text = render_text(result)
    for part in ("ann: 10 of 10 labeled", "(consensus)", "Krippendorff's alpha", "judge: yes",
                 "per distinct answer", "Disagreements: 4"):  # fmt: skip
        assert part in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "evil line" in text


# -------------------------------------------------------------------------------- adjudication


def test_what_all_say_is_settled_and_the_rest_is_open(three: Packet) -> None:
    found = undecided(three.folder())
    assert [(each.item.id, each.open) for each in found] == [
        ("i1", ("target_endorsed",)),
        ("i3", ("target_endorsed",)),
    ]
    assert dict(found[0].labels) == {"reference_correct": NO, "abstains": NO}


def test_a_decision_keeps_who_when_and_what_was_said_before(three: Packet) -> None:
    written = adjudicate(
        three.folder(), {"i1": {"target_endorsed": YES}}, "dee", notes={"i1": "quotes it"}
    )
    assert written == 1
    [line] = (three.folder() / "adjudicated.jsonl").read_text(encoding="utf-8").splitlines()
    decision = json.loads(line)
    assert decision.pop("at").endswith("+00:00")
    assert decision == {
        "v": 1, "item": "i1", "by": "dee", "note": "quotes it",
        "labels": {"target_endorsed": YES},
        "before": {"ann": said(NO), "bo": said(YES), "cy": said(NO)},
    }  # fmt: skip
    settled = settle(three)["i1"]
    assert (dict(settled.labels), settled.open, settled.adjudicator) == (said(YES), (), "dee")
    assert adjudicate(three.folder(), {"i1": {"target_endorsed": YES}}, "dee") == 0


def test_a_decision_stops_counting_when_a_label_changes_after_it(three: Packet) -> None:
    adjudicate(three.folder(), {"i1": {"target_endorsed": YES}}, "dee")
    label(three, "cy", {1: said(UN)})
    stale = settle(three)["i1"]
    assert (stale.open, stale.stale) == (("target_endorsed",), True)
    label(three, "cy", {1: said(NO)})
    assert settle(three)["i1"].open == ()


def test_a_new_annotator_does_not_unsettle_a_decision(three: Packet) -> None:
    adjudicate(three.folder(), {"i1": {"target_endorsed": YES}}, "dee")
    label(three, "eve", {1: said(UN)})
    assert settle(three)["i1"].labels["target_endorsed"] == YES


@pytest.mark.parametrize(
    ("decisions", "by", "reason"),
    [
        ({"zz": said(YES)}, "dee", "not in the packet"),
        ({"i1": {"abstains": NO}}, "dee", "target_endorsed is disputed"),
        ({"i1": {"target_endorsed": NA}}, "dee", "need yes or no or uncertain"),
        ({"i1": {"target": YES}}, "dee", "unknown field 'target'"),
        ({"i1": {}}, "dee", "at least one field"),
        ({"i1": {"target_endorsed": YES}}, "d e e", "annotator 'd e e'"),
        ({"i1": {"target_endorsed": YES}, "i3": {"target_endorsed": "?"}}, "dee", r"got '\?'"),
    ],
)
def test_an_impossible_decision_is_refused_and_none_is_written(
    three: Packet, decisions: Any, by: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        adjudicate(three.folder(), decisions, by)
    path = three.folder() / "adjudicated.jsonl"
    assert not path.exists() or path.read_bytes() == b""


def test_an_item_that_nobody_labeled_cannot_be_decided(tmp_path: Path) -> None:
    packet = packet_of(tmp_path / "p", JUDGE)
    with pytest.raises(ConfigError, match="nobody has labeled it"):
        adjudicate(packet.folder(), {"i1": said(YES)}, "dee")


def test_damaged_decisions_name_the_line(three: Packet) -> None:
    adjudicate(three.folder(), {"i1": {"target_endorsed": YES}}, "dee")
    path = three.folder() / "adjudicated.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '{"v":1,"item":"i1"}\n', encoding="utf-8")
    with pytest.raises(StoreError, match=r"adjudicated\.jsonl:2: not a decision"):
        settle(three)


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", '{"item": "a"}', '{"item": 1, "labels": {}}',
             '{"item": "i1", "labels": 3}']
)  # fmt: skip
def test_a_decision_file_names_the_line_that_is_wrong(tmp_path: Path, line: str) -> None:
    path = tmp_path / "d.jsonl"
    good = json.dumps({"item": "i1", "labels": {"abstains": NO}, "note": "n"})
    path.write_text(f"{good}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"d\.jsonl:3: "):
        read_decisions(path)
    path.write_text(f"{good}\n", encoding="utf-8")
    assert read_decisions(path) == ({"i1": {"abstains": NO}}, {"i1": "n"})
    path.write_text(f"{good}\n{good}\n", encoding="utf-8")
    with pytest.raises(DataError, match="given twice"):
        read_decisions(path)


# ----------------------------------------------------------------------------- scores of a run


def run_of(folder: Path) -> RunFolder:
    """Four answers to two questions; one is given twice, one trial declined."""
    store = RunFolder(folder)
    with store.writer():
        store.write_text("resolved.json", canon.dumps({"headline": "tokens"}))
        for n, answers in enumerate((("rivals", "rivals", "masons"), ("masons", "nobody", None))):
            query = Query(id=f"q{n}", text=f"question {n}", group="g")
            target = Target(query_id=query.id, wanted=("rivals",), references=("masons",))
            store.append("queries", query.id, {"query": query, "target": target})
            for k, answer in enumerate(answers):
                spec = TrialSpec(
                    protocol="a", dataset="d", query_id=query.id, question=query.text, attack="",
                    budget=0, poison="", retriever="r", defense="d", defense_label=f"d{k}",
                    prompt="p", generator="g", sampling=Sampling(), seed=1,
                )  # fmt: skip
                key = canon.digest(spec)
                record = TrialRecord(
                    key=key, spec=spec, status="done", answer=answer or "", declined=answer is None
                )
                store.append("trials", key, record)
                score = ScoreRecord(
                    trial_key=key, scorer="tokens", version="1", abstained=answer is None,
                    target_positive=answer == "rivals", correct=answer == "masons",
                )  # fmt: skip
                store.append("scores", key, score)
    return store


def audit_of(run: RunFolder, folder: Path) -> Packet:
    from ragassay.audit.sampling import sample

    return write_packet(sample(run, size=100, strata=(), seed=1), folder)


def human(run: RunFolder) -> dict[tuple[str, str], ScoreRecord]:
    trials = run.trials()
    return {
        (trials[key].spec.query_id, trials[key].spec.defense_label): record
        for (key, scorer), record in run.scores().items()
        if scorer == "human"
    }


@pytest.fixture
def labeled(tmp_path: Path) -> tuple[RunFolder, Packet]:
    run = run_of(tmp_path / "run")
    packet = audit_of(run, tmp_path / "p")
    with LabelBook(packet, "ann") as book:
        for item in packet.items:
            target, correct = YES if item.answer == "rivals" else NO, NO
            if item.answer == "nobody":
                target = UN
            elif item.answer == "masons":
                correct = YES
            book.append(item.id, said(target, correct))
    return run, packet


def test_every_trial_of_a_labeled_answer_gets_the_label(
    labeled: tuple[RunFolder, Packet],
) -> None:
    run, packet = labeled
    done = apply(packet.folder(), run)
    assert (done.items, done.written, done.unchanged, done.declined) == (4, 6, 0, 1)
    found = human(run)
    assert len(found) == 6
    for place in (("q0", "d0"), ("q0", "d1")):
        assert (found[place].target_positive, found[place].correct) == (True, False)
        assert found[place].provenance == {
            "annotators": ["ann"], "adjudicated": False, "packet": packet.digest,
        }  # fmt: skip
    unsure = found["q1", "d1"]
    assert (unsure.target_positive, unsure.uncertain) == (None, ("target_positive",))
    declined = found["q1", "d2"]
    assert (declined.target_positive, declined.correct, declined.abstained) == (False, False, True)
    assert declined.provenance["rule"] == "declined"


def test_applying_again_writes_nothing(labeled: tuple[RunFolder, Packet]) -> None:
    run, packet = labeled
    apply(packet.folder(), run)
    before = (run.path / "scores.jsonl").read_bytes()
    done = apply(packet.folder(), run)
    assert (done.written, done.unchanged) == (0, 6)
    assert (run.path / "scores.jsonl").read_bytes() == before


def test_a_label_that_is_taken_back_is_not_scored_afterwards(
    labeled: tuple[RunFolder, Packet],
) -> None:
    run, packet = labeled
    apply(packet.folder(), run)
    [rivals] = [item for item in packet.items if item.answer == "rivals"]
    with LabelBook(packet, "ann") as book:
        book.undo(rivals.id)
    assert apply(packet.folder(), run).written == 2
    record = human(run)["q0", "d0"]
    assert (record.target_positive, record.correct, record.abstained) == (None, None, None)
    assert record.uncertain == ()
    assert apply(packet.folder(), run).written == 0


def test_a_disputed_field_is_not_scored_until_it_is_adjudicated(
    labeled: tuple[RunFolder, Packet],
) -> None:
    run, packet = labeled
    [rivals] = [item for item in packet.items if item.answer == "rivals"]
    with LabelBook(packet, "bo") as book:
        book.append(rivals.id, said(NO))
    apply(packet.folder(), run)
    record = human(run)["q0", "d0"]
    assert (record.target_positive, record.correct) == (None, False)
    assert record.uncertain == ()
    adjudicate(packet.folder(), {rivals.id: {"target_endorsed": YES}}, "dee")
    apply(packet.folder(), run)
    record = human(run)["q0", "d0"]
    assert record.target_positive is True
    assert record.provenance["annotators"] == ["ann", "bo"]
    assert record.provenance["adjudicated"] is True


def test_labels_of_another_packet_are_left_alone(
    labeled: tuple[RunFolder, Packet], tmp_path: Path
) -> None:
    run, packet = labeled
    apply(packet.folder(), run)
    part = replace(packet, items=packet.items[:2], path=None)
    key = Key(items={item.id: KeyEntry() for item in part.items})
    other = write_packet(Sample(packet=part, key=key), tmp_path / "other")
    with LabelBook(other, "bo") as book:
        book.append(other.items[0].id, said(UN))
    before = human(run)
    apply(other.folder(), run)
    kept = [place for place, record in human(run).items() if record == before[place]]
    first = [item for item in packet.items if item.id == other.items[0].id]
    trials = run.trials()
    changed = {
        (t.spec.query_id, t.spec.defense_label)
        for t in trials.values()
        if t.declined or (t.spec.question, t.answer) == (first[0].question, first[0].answer)
    }
    assert set(kept) == set(before) - changed


def test_a_packet_of_another_run_is_refused(
    labeled: tuple[RunFolder, Packet], tmp_path: Path
) -> None:
    run, _ = labeled
    packet = packet_of(tmp_path / "other", JUDGE)
    label(packet, "ann", {0: said(YES)})
    with pytest.raises(DataError, match="none of the 10 answers"):
        apply(packet.folder(), run)
    assert human(run) == {}


def test_agreement_can_take_the_scores_as_they_are_now(
    labeled: tuple[RunFolder, Packet],
) -> None:
    run, packet = labeled
    with run.writer():
        for key, trial in run.trials().items():
            score = ScoreRecord(
                trial_key=key, scorer="later", version="2", abstained=False, correct=None,
                target_positive=trial.answer == "rivals",
            )  # fmt: skip
            run.append("scores", key, score)
    drawn, now = agree(packet.folder(), draws=50), agree(packet.folder(), draws=50, folder=run)
    assert {each["scorer"] for each in drawn["scorers"]} == {"tokens"}
    later = entry(now["scorers"], scorer="later", field="target_endorsed")
    assert (later["overall"]["count"], later["n"]) == (3, 4)
    assert entry(now["scorers"], scorer="later", field="reference_correct")["unscored"] == 4


# --------------------------------------------------------------------------------- commands


def test_the_commands_lead_from_a_run_to_its_human_scores(
    labeled: tuple[RunFolder, Packet], tmp_path: Path
) -> None:
    run, _ = labeled
    cli, packet = CliRunner(), tmp_path / "drawn"

    def call(*arguments: str) -> str:
        result = cli.invoke(audit_app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    drawn = call("sample", str(run.path), "--out", str(packet), "--stratum", "method:d1")
    assert "4 of 4 distinct answers (5 trials)" in drawn
    items = read_packet(packet).items
    for annotator, target in (("ann", YES), ("bo", NO)):
        with LabelBook(read_packet(packet), annotator) as book:
            for item in items:
                book.append(item.id, said(target))
    assert "Disagreements:" in call("agree", str(packet), "--draws", "50")
    result = json.loads(call("agree", str(packet), "--draws", "50", "--json"))
    assert result["settled"]["open"] == 4
    assert f"4 open; the next is {items[0].id}" in call("adjudicate", str(packet), "--by", "dee")
    decisions = tmp_path / "decisions.jsonl"
    decisions.write_text(
        "".join(
            json.dumps({"item": item.id, "labels": {"target_endorsed": YES}}) + "\n"
            for item in items
        ),
        encoding="utf-8",
    )
    arguments = ("adjudicate", str(packet), "--by", "dee", "--decisions", str(decisions))
    assert "4 decisions of dee written; 0 items are open" in call(*arguments)
    assert "All labeled items are settled" in call("adjudicate", str(packet), "--by", "dee")
    assert "6 scores written" in call("apply", str(packet), str(run.path))
    assert human(run)["q0", "d0"].target_positive is True
