"""Figures of a control ladder on made-up records whose outcomes are known."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.config import ExperimentFile, apply_override, parse
from ragassay.config.grid import read_grid
from ragassay.config.ladder import LadderPart
from ragassay.errors import ConfigError
from ragassay.experiments.grid import toml
from ragassay.experiments.ladder_records import judged_learned, judged_trials, removed_places
from ragassay.experiments.protocols import analyze
from ragassay.report.ladder_page import finding, finding_detail, page, tables
from ragassay.report.leaderboard import board, csv_text, leaders, rows_of
from ragassay.report.page import page_html
from ragassay.store import RunFolder
from ragassay.types import (
    ContextEntry,
    Knowledge,
    Passage,
    PoisonSet,
    Query,
    Sampling,
    Target,
    TrialRecord,
    TrialSpec,
)

QUESTIONS = [f"q{n:02d}" for n in range(12)]
VARIANTS = ("template", "prefix_removed")
TREE: dict[str, Any] = {
    "name": "toy", "dataset": "atlas", "generator": "smollm2", "protocol": "ladder",
    "budgets": [2], "defense": ["containment_only", "trustrag_filter"],
    "statistics": {"draws": 200},
    "ladder": {"rungs": list(VARIANTS), "learned": True, "seeds": [1]},
}  # fmt: skip


def spec(query: str, variant: str, defense: str) -> TrialSpec:
    return TrialSpec(
        protocol="ladder/1", dataset="d", query_id=query, question=f"Question {query}?",
        attack="toy" if variant else "", budget=2 if variant else 0, poison="p", retriever="r:k3",
        defense=defense, defense_label=defense, prompt="t", generator="g", sampling=Sampling(),
        seed=12, variant=variant,
    )  # fmt: skip


def trial(query: str, variant: str, defense: str, found: int, missed: int) -> TrialRecord:
    """Of three retrieved passages ``found`` are poison; ``missed`` of these pass the filter."""
    entries = []
    for place in range(3):
        poison = bool(variant) and place < found
        passed = not poison or place < missed or defense == "none"
        name = f"{query}-{place}.{variant}" if poison else f"c{place}"
        entries.append(
            ContextEntry(
                id=name,
                score=1.0 - place / 10,
                origin="own" if poison else "corpus",
                gold=False,
                kept=passed,
            )
        )
    scored = defense == "containment_only"
    made = spec(query, variant, defense)
    return TrialRecord(
        key=canon.digest(made), spec=made, status="done", context=tuple(entries),
        suspicion={e.id: 0.0 if e.kept else 1.0 for e in entries} if scored else {},
        trace={"removed_ranks": [i + 1 for i, e in enumerate(entries) if not e.kept]},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Twelve questions, two crafted passages each.

    On the template both are retrieved and the first filter misses none of 24; without the prefix
    half of the questions retrieve one, and it misses all. The second filter misses one of two on
    the template, and one of one afterwards.
    """
    store = RunFolder(tmp_path)
    experiment = ExperimentFile.model_validate(TREE).model_dump(mode="json", exclude={"run"})
    resolved = {
        "v": 1, "protocol": "ladder/1", "experiment": experiment, "headline": "endorse",
        "dataset": {"name": "toy", "evaluated": 12, "passages": 9, "groups": 12},
        "settings": {"": {"retriever": "r", "k": 3, "generator": "g"}},
        "attacks": {"toy": "a"}, "scorers": {"endorse": "e"},
        "defenses": dict.fromkeys(("none", "containment_only", "trustrag_filter"), "d"),
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved) + "\n")
        lengths = {"words_and_passages": [[n, 1] for n in range(5, 25)]}
        store.write_text("clean_lengths.json", canon.dumps(lengths) + "\n")
        for number, name in enumerate(QUESTIONS):
            query = Query(id=name, text=f"Question {name}?", group=name)
            target = Target(query_id=name, wanted=("wrong",), references=("right",))
            store.append("queries", name, {"query": query, "target": target})
            texts = [f"Question {name}? It is wrong {n} <b>." for n in range(2)]
            store.append("poison", name, PoisonSet(
                attack="toy", query_id=name, knowledge=Knowledge(),
                passages=tuple(Passage(id=f"{name}-{n}", text=t) for n, t in enumerate(texts)),
            ))  # fmt: skip
            for variant in VARIANTS:
                removed = variant == "prefix_removed"
                store.append("rungs", f"{name}{variant}", {
                    "arm": "r:k3", "attack": "toy", "query_id": name, "rung": variant,
                    "filler": "", "passages": [{
                        "number": n, "source": f"{name}-{n}", "id": f"{name}-{n}.{variant}",
                        "text": text.split("? ")[1] if removed else text,
                        "edit": {"possible": True, "changed": removed, "payload_intact": True,
                                 "removed": int(removed), "words_before": 7, "words": 5,
                                 "sources": [], "reason": ""},
                    } for n, text in enumerate(texts)],
                })  # fmt: skip
                found = 2 if not removed else 1 if number % 2 else 0
                for defense, missed in (("none", 2), ("containment_only", 2 * removed),
                                        ("trustrag_filter", 1)):  # fmt: skip
                    record = trial(name, variant, defense, found, missed)
                    store.append("trials", record.key, record)
                store.append("learned", f"{name}{variant}", {
                    "setting": "", "attack": "toy", "budget": 2, "rung": variant, "filler": "",
                    "seed": 1, "drop": "", "reason": "", "candidates": [
                        [name, f"{name}-{n}.{variant}", True, 0.05 if removed else 0.95]
                        for n in range(found)
                    ] + [[name, "c2", False, 0.02]],
                })  # fmt: skip
            for defense in ("none", "containment_only", "trustrag_filter"):
                record = trial(name, "", defense, 0, 0)
                store.append("trials", record.key, record)
    return store


def of(summary: dict[str, Any], defense: str) -> dict[str, dict[str, Any]]:
    return {row["variant"]: row for row in summary["rows"] if row["defense"] == defense}


def test_the_figures_are_those_of_the_records(folder: RunFolder) -> None:
    summary = analyze(folder)
    assert summary["trials"] == {"planned": 108, "done": 108, "failed": 0, "missing": 0}
    first, second = of(summary, "containment_only"), of(summary, "trustrag_filter")

    before, after = first["template"], first["prefix_removed"]
    assert (before["fnr"]["count"], before["fnr"]["n"]) == (0, 24)
    assert (before["fpr"]["count"], before["fpr"]["n"]) == (0, 12)
    assert before["auroc"]["value"] == 1.0
    assert (before["retrieval"]["count"], before["retrieval"]["n"]) == (24, 24)
    assert before["success"]["count"] == 0
    assert before["harm"]["value"] == 0

    assert (after["fnr"]["count"], after["fnr"]["n"]) == (6, 6)  # of the retrieved
    assert (after["retrieval"]["count"], after["retrieval"]["n"]) == (6, 24)  # beside it
    assert (after["success"]["count"], after["success"]["n"]) == (6, 24)  # of all crafted
    assert after["harm"]["value"] == pytest.approx(1000 * 9.0 * 6 / 12)
    assert after["contamination"]["count"] == 6
    assert after["change"]["fnr"]["value"] == 1.0
    assert after["change"]["mode"] == "signal"

    assert second["template"]["matched"] is None
    assert second["template"]["auroc"] is None
    assert (second["template"]["fnr"]["count"], second["template"]["fnr"]["n"]) == (12, 24)
    assert second["prefix_removed"]["fnr"]["value"] == 1.0

    profiles = {each["variant"]: each for each in summary["profiles"]}
    assert profiles["template"]["saturated"] == []  # 12 questions are too few to be sure
    assert profiles["template"]["profile"]["containment"]["count"] == 24
    assert profiles["prefix_removed"]["profile"]["containment"]["count"] == 0


def test_the_learned_scorer_is_pooled_and_decides_by_costs(folder: RunFolder) -> None:
    summary = analyze(folder)
    rows = of(summary, "learned scorer")
    assert rows["template"]["fnr"]["value"] == 0.0  # 0.95 is above 1 / (1 + 9)
    assert rows["prefix_removed"]["fnr"]["value"] == 1.0  # 0.05 is below
    assert rows["prefix_removed"]["auroc"]["value"] == 1.0
    assert rows["prefix_removed"]["matched"]["fnr"]["value"] == 0.0
    assert rows["prefix_removed"]["change"]["mode"] == "calibration"
    assert rows["prefix_removed"]["change"]["ratio"] is None  # the AUROC did not fall
    expected = (24 * 0.05 + 12 * 0.02) / 36
    assert rows["template"]["ece"]["value"] == pytest.approx(expected)
    cells = {cell["variant"]: cell for cell in summary["decision"]["cells"]}
    # Passing costs 9 p, blocking 1 - p, adjudicating 0.3: 0.05 -> 0.45, so it is escalated.
    assert cells["prefix_removed"]["actions"]["poison"] == {"PASS": 0, "ESCALATE": 6, "BLOCK": 0}
    assert cells["template"]["actions"]["poison"] == {"PASS": 0, "ESCALATE": 0, "BLOCK": 24}
    assert cells["template"]["in_band"]["count"] == 12  # 0.02 lies in [1/181, 0.307)
    # With a trust factor of 4 the threshold is 1/37 = 0.027: 0.05 is blocked, 0.02 is not.
    assert cells["prefix_removed"]["rules"] == {
        "n": 18, "half_and_tau_d": 0, "half_and_tau_ds": 6, "tau_d_and_tau_ds": 6,
        "identical": False,
    }  # fmt: skip


def test_equal_records_give_equal_summaries(folder: RunFolder) -> None:
    assert canon.dumps(analyze(folder)) == canon.dumps(analyze(folder))


def test_the_page_leads_with_the_finding_and_shows_hostile_texts_as_text(
    folder: RunFolder,
) -> None:
    summary = analyze(folder)
    # containment_only is a floor: a filter proper leads although its miss rate rises less.
    assert finding(summary).startswith("Removing the question prefix raises")
    assert "containment_only" not in finding(summary)
    assert "Retrieval survival" in finding_detail(summary)
    text = page_html(page(folder, summary, folder.read_json("resolved.json")), {}, {})
    assert "<b>" not in text.split('id="data">')[1].split("</script>")[0]
    entries = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert len(entries) == 24  # what was edited
    marked = entries[0]["quotes"][0]
    start, stop, kind = marked["marks"][0]
    assert kind == "removed"
    assert marked["text"][start:stop] == f"Question {QUESTIONS[0]}?"
    assert len(tables(summary)) >= 2


def test_a_trial_that_is_missing_is_counted(folder: RunFolder) -> None:
    path = folder.path / "trials.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    assert analyze(folder)["trials"]["missing"] == 1


def test_a_trace_that_names_no_ranks_falls_back_to_what_was_kept() -> None:
    one = trial("q", "template", "trustrag_filter", 2, 1)
    assert removed_places(one) == {1}
    silent = TrialRecord(key="k", spec=one.spec, status="done", context=one.context)
    assert removed_places(silent) == {1}
    gone = TrialRecord(key="k", spec=one.spec, status="done", context=one.context, declined=True)
    assert removed_places(gone) == {0, 1, 2}
    assert judged_trials([gone], 3).contaminated == [False]


def test_what_only_does_not_fit_is_not_blocked() -> None:
    one = trial("q", "template", "raguard", 0, 0)
    context = tuple(
        ContextEntry(id=e.id, score=e.score, origin="corpus", gold=False, kept=place == 1)
        for place, e in enumerate(one.context)
    )
    full = TrialRecord(
        key="k", spec=one.spec, status="done", context=context,
        trace={"removed_ranks": [1], "surplus_ranks": [3]},
    )  # fmt: skip
    assert judged_trials([full], 3).blocked == [True, False, False]
    assert judged_trials([full], 1).queries == ["q"]  # the first k alone are candidates


def test_seeds_are_runs_of_one_question() -> None:
    bodies = [
        {"seed": seed, "candidates": [["q", "a", True, 0.2], ["q", "b", False, 0.1]]}
        for seed in (1, 2)
    ]
    judged = judged_learned(bodies, 0.15)
    assert judged.contexts == [("1", "q"), ("2", "q")]
    assert judged.blocked == [True, False, True, False]
    assert judged.candidates().misses.clusters == ["q", "q"]


# --------------------------------------------------------------------------------- settings


def test_a_ladder_pads_with_all_fillers_on_one_rung() -> None:
    assert LadderPart().variants == (
        ("template", ""), ("prefix_removed", ""), ("length_matched", "clean"),
        ("length_matched", "shuffled"), ("length_matched", "pseudowords"), ("both", "clean"),
        ("mimicry", "clean"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "aligned"}, "[ladder] belongs to protocol = 'ladder'"),
        ({"utility": {}}, "[utility] is not for protocol = 'ladder'"),
        ({"ladder": {"rungs": []}}, "rungs must be distinct and not empty"),
        ({"ladder": {"learned": False, "ablation": True}}, "ablation = true needs learned"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({**TREE, **changes})
    assert message in str(error.value)


def test_the_table_may_be_left_out() -> None:
    tree = {key: value for key, value in TREE.items() if key != "ladder"}
    assert parse(tree).ladder == LadderPart()
    assert parse({**tree, "protocol": "aligned"}).ladder is None


def test_plain_values_survive_being_written_as_toml() -> None:
    tree = {
        "text": 'a "quoted"\n\\ line \x7f é', "number": 1.5, "flag": False,
        "table": {"odd key": [1, "x", {"deep": []}]},
    }  # fmt: skip
    assert tomllib.loads(toml(tree)) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name"),
        ('name = "g"\ncorpus = []\n[experiment]\n', "corpus"),
        ('name = "g"\n[[corpus]]\nname = "a"\n[experiment]\n', "give folders or a dataset"),
        ('name = "g"\n[[corpus]]\nname = "a"\ndataset = "atlas"\n[experiment]\nname = "x"\n',
         "may not hold 'name'"),
        ('name = "g"\n[quick]\ncorpus = "b"\n[[corpus]]\nname = "a"\ndataset = "atlas"\n'
         "[experiment]\n", "quick.corpus is 'b'"),
    ],
)  # fmt: skip
def test_a_grid_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_grid(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_example_of_a_grid_is_valid() -> None:
    root = Path(__file__).resolve().parents[2]
    grid = read_grid(root / "examples" / "grid.toml")
    tree = {**grid.experiment, "name": "x", "dataset": "atlas", "protocol": "ladder"}
    asked = set()
    for corpus in grid.corpus:
        own = deepcopy(tree)
        for each in corpus.set:
            apply_override(own, each)
        file = parse(own)
        asked |= {defense.plugin for defense in file.defense}
        for attack in file.attack:
            writes = attack.plugin in ("poisonedrag", "corpuspoison")
            if writes and corpus.folders and not corpus.targets:  # no poison is released for it
                assert attack.options.get("source") == "generated", corpus.name
    assert "reliabilityrag" in asked


def test_the_board_carries_profiles_and_no_formula(folder: RunFolder) -> None:
    summary = analyze(folder)
    rows = rows_of("=cmd()", summary)
    assert all(row["containment"]["n"] == 24 for row in rows)
    table = csv_text(rows).splitlines()
    assert len(table) == 1 + len(rows)
    assert all(line.startswith("'=cmd()") for line in table[1:])
    best = leaders(rows)
    assert [row["rung"] for row in best] == ["prefix_removed", "template"]
    assert best[0]["success"]["count"] == 6
    assert all(not row["reference"] for row in best)  # a floor is no defense


def test_a_subset_with_fewer_filters_makes_no_headline(folder: RunFolder) -> None:
    rows = [row for row in rows_of("all", analyze(folder)) if not row["reference"]]
    one = rows[0]["filter"]
    alone = [
        {**row, "corpus": "subset", "success": {**row["success"], "value": 1.0}}
        for row in rows if row["filter"] == one
    ]  # fmt: skip
    more = [{**row, "filter": "another"} for row in rows if row["filter"] == one]
    found = board("toy", [*rows, *more, *alone], {})
    assert leaders([*rows, *more, *alone])[0]["corpus"] == "subset"  # but it had one filter
    assert " on all gets furthest" in found.finding
    listed = found.sections[0].parts[0].grids[0].rows
    assert listed[0][4] == f"{one} (of 1)"
    assert all(f"(of {len({r['filter'] for r in rows}) + 1})" in row[4] for row in listed[2:])
