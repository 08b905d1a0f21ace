"""Golden values of the construction profile, filter rates, collapse modes and decisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay.attacks.poisonedrag import build_black_box
from ragassay.construction.filler import filler_pool
from ragassay.construction.ladder import Ladder
from ragassay.construction.profile import clean_lengths, length_overlap, lengths_of, profile
from ragassay.construction.texts import (
    PoisonText,
    read_clean_texts,
    read_poison_texts,
    with_text,
)
from ragassay.matching import holds_verbatim, profile_text
from ragassay.stats.calibration_error import ece
from ragassay.stats.collapse import OperatingFigures, collapse, ratio_bound
from ragassay.stats.decision import (
    Costs,
    Dispositions,
    action,
    harm_per_thousand,
    relative_change,
    tau_d,
    tau_ds,
)
from ragassay.stats.dose import Resampling
from ragassay.stats.filter_rates import Candidates, matched_rate
from ragassay.stats.ladder_success import attack_success

PARTS = ("profile", "collapse", "decision")


def how() -> Resampling:
    return Resampling(np.random.default_rng(1), draws=200)


def deleted(text: str) -> str:
    """The form that the paper states, punctuation removed: it has the trap."""
    return " ".join("".join(c for c in text.lower() if c.isalnum() or c.isspace()).split())


def containment(question: str, doc: str) -> dict[str, bool]:
    spaced = f" {profile_text(question)} " in f" {profile_text(doc)} "
    assert holds_verbatim(question, doc) is True  # the rule: characters, punctuation as spaces
    return {
        "char_level_delete_punct": deleted(question) in deleted(doc),
        "token_level_delete_punct": f" {deleted(question)} " in f" {deleted(doc)} ",
        "token_level_punct_to_space": spaced,
    }


def overlap(clean_lengths: list[int], poison_lengths: list[int], quantile: str = "") -> Any:
    clean = _clean(clean_lengths)
    texts = [PoisonText(query_id=str(i), question="q", text="w " * n)
             for i, n in enumerate(poison_lengths)]  # fmt: skip
    assert profile("x", texts, clean).overlap.value == length_overlap(poison_lengths, clean)
    return {"l5": clean.l5, "l95": clean.l95, "overlap": length_overlap(poison_lengths, clean),
            "width": clean.width}  # fmt: skip


_clean = clean_lengths


def ratios(fnr: list[float], auroc: list[float]) -> dict[str, Any]:
    found = collapse(*(OperatingFigures(fnr=f, auroc=a) for f, a in zip(fnr, auroc, strict=True)))
    return {"dFNR": found.delta_fnr, "dAUROC": found.delta_auroc, "ratio": found.ratio}


def success(retrieved: list[int], intact: list[int], passes: list[int]) -> dict[str, Any]:
    flags = [[bool(x) for x in part] for part in (retrieved, intact, passes)]
    found = attack_success(*flags, range(len(retrieved)), how())
    return {"success": [int(bool(x)) for x in found.success], "rate": found.rate.value}


def matched(pos: list[float], neg: str, fpr: float) -> dict[str, float]:
    assert neg == "i/20 for i=0..19"
    clean = [i / 20 for i in range(20)]
    kind = np.array([True] * len(pos) + [False] * 20)
    cell = Candidates(
        queries=list(range(len(kind))), poison=kind, blocked=~kind, scores=[*pos, *clean]
    )
    found = matched_rate(cell, how(), fpr=fpr)
    assert found is not None
    assert found.fnr.value is not None
    return {"threshold": found.threshold, "fnr": found.fnr.value}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "verbatim_containment": containment,
    "length_overlap": overlap,
    "collapse_ratio": ratios,
    "max_ratio_signal": lambda auroc: ratio_bound(*auroc),
    "attack_success": success,
    "ece": lambda p, y, bins: ece(p, y, bins=bins),
    "tau_d": tau_d,
    "tau_ds": lambda rho, kappa, clip: tau_ds(rho, kappa, clip=tuple(clip)),
    "action": lambda p, rho, cA: action(p, Costs(rho, cA)),
    "harm_per_thousand_queries": lambda n_queries, rho, cA, **counts: harm_per_thousand(
        Dispositions(queries=n_queries, **counts), Costs(rho, cA)
    ),
    "relative_change": relative_change,
    "fnr_at_fpr": matched,
}
ON_DATA = {"verbatim_containment_rate"}  # below, on the released file


def close(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(
            close(found[key], expected[key], tolerance) for key in expected
        )
    if isinstance(expected, (str, bool, list)):
        return bool(found == expected)
    return bool(found == pytest.approx(expected, abs=max(tolerance, 1e-12)))


def test_the_golden_entries(golden: dict[str, list[dict[str, Any]]]) -> None:
    checked = 0
    entries = [e for part in PARTS for e in golden[part]]
    entries += [e for e in golden["detector"] if e["function"] == "fnr_at_fpr"]
    for entry in entries:
        if entry["function"] in ON_DATA:
            continue
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        assert close(found, entry["expected"], entry["tolerance"]), (entry["id"], found)
        checked += 1
    assert checked == 31


def test_the_examples_of_the_paper_have_their_modes() -> None:
    start = OperatingFigures(fnr=0.0, auroc=1.0)
    after = OperatingFigures(fnr=0.986, auroc=0.953, fnr_matched=0.321)
    assert collapse(start, after).mode == "calibration"
    raguard = OperatingFigures(fnr=0.191, auroc=0.953)
    after = OperatingFigures(fnr=0.763, auroc=0.758, fnr_matched=0.796)
    assert collapse(raguard, after).mode == "mixed"
    after = OperatingFigures(fnr=0.9, auroc=0.503)
    assert collapse(start, after).mode == "signal"


# ------------------------------------------------------------------------- the released texts


@pytest.mark.parametrize("name", ["nq", "hotpotqa", "msmarco"])
def test_released_texts_hold_their_question_only_once_joined(shared_data: Path, name: str) -> None:
    file = shared_data / "poisonedrag" / f"targets-{name}.jsonl"
    clean = clean_lengths([20, 100])
    for join, expected in ((None, 0.0), (build_black_box, 1.0)):
        [(_, texts)] = read_poison_texts(file, join=join).items()
        found = profile("poisonedrag", texts, clean)
        assert (found.passages, found.queries) == (500, 100)
        assert found.containment.value == expected
        assert found.verdicts["containment"] == ("saturated" if expected else "absent")
    # The trap: with punctuation removed, the question's last word runs into the text.
    tokens = [f" {deleted(t.question)} " in f" {deleted(t.text)} " for t in texts]
    assert sum(tokens) / len(tokens) == pytest.approx(
        {"nq": 0.0, "hotpotqa": 0.06, "msmarco": 0.01}[name], abs=5.1e-3
    )


# The column "question" of the README of the data. It counts whole tokens; by characters a
# question also counts that runs into a word.
TABLE = {
    "realtimeqa/targets.jsonl": [("", 500, 0.0)],
    "simpleqa/targets.jsonl": [("", 2500, 0.0)],
    "authchain/poison-nq.jsonl": [("authchain", 100, 1.0)],
    "authchain/poison-hotpotqa.jsonl": [("authchain", 100, 0.0)],
    "authchain/poison-msmarco.jsonl": [("authchain", 100, 1.0)],
    "poisonarena/arena-nq.jsonl": [("", 4000, 0.0)],
    "poisonarena/arena-msmarco.jsonl": [("", 4000, 0.004)],
    "poisonarena/attack-nq-poisonedrag_black.jsonl.gz": [(None, 3000, 1.0)],
    "poisonarena/attack-nq-poisonedrag_white.jsonl.gz": [(None, 3000, 0.0)],
    "poisonarena/attack-nq-advdecoding.jsonl.gz": [(None, 3000, 0.002)],
    "poisonarena/attack-nq-gaslite.jsonl.gz": [(None, 3000, 0.0)],
    "poisonarena/attack-nq-corpus_poison.jsonl.gz": [(None, 3000, 0.0)],
    "poisonarena/attack-nq-garag.jsonl.gz": [(None, 500, 0.0)],
    "poisonarena/attack-msmarco-advdecoding.jsonl.gz": [(None, 3000, 0.027)],
    "poisonarena/attack-msmarco-garag.jsonl.gz": [(None, 500, 0.010)],
    "poisonarena/attack-msmarco-gaslite.jsonl.gz": [(None, 3000, 0.005)],
    "poisonarena/attack-msmarco-poisonedrag_black.jsonl.gz": [(None, 3000, 1.0)],
    "poisonarena/attack-msmarco-poisonedrag_white.jsonl.gz": [(None, 3000, 0.005)],
    "poisonarena/serials-nq-poisonedrag_black.jsonl.gz": [(None, 30000, 0.5)],
    "ragdefender/poison-nq.jsonl.gz": [
        ("blind", 500, 0.0), ("garag", 590, 0.0), ("ragdefender_gemini", 2725, 0.044),
        ("ragdefender_gemini_100", 2000, 0.125), ("ragdefender_gemini_100_x", 2000, 0.008),
        ("ragdefender_gpt4", 2506, 0.008),
    ],
    "ragdefender/poison-hotpotqa.jsonl.gz": [
        ("blind", 200, 0.0), ("garag", 400, 0.0), ("ragdefender_gemini", 2528, 0.009),
        ("ragdefender_gemini_100", 2000, 0.032), ("ragdefender_gemini_100_x", 2000, 0.004),
        ("ragdefender_gpt4", 2501, 0.0),
    ],
    "ragdefender/poison-msmarco.jsonl.gz": [
        ("blind", 200, 0.0), ("garag", 202, 0.0), ("ragdefender_abl_far", 400, 0.022),
        ("ragdefender_abl_far2", 400, 0.022), ("ragdefender_gemini", 2674, 0.015),
        ("ragdefender_gemini_100", 2000, 0.154), ("ragdefender_gemini_100_x", 2000, 0.022),
        ("ragdefender_gpt4", 2508, 0.010), ("ragdefender_mixed_strategy_attack", 400, 0.022),
        ("ragdefender_paraphrasing_attack", 400, 0.028),
        ("ragdefender_semantic_dispersion_attack", 400, 0.058),
        ("ragdefender_synonym_substitution_attack", 400, 0.0),
    ],
}  # fmt: skip
# Passages in which the question runs into a word ("... generic name" + "s").
RUNS_ON = {"poisonarena/attack-msmarco-advdecoding.jsonl.gz": 3}


@pytest.mark.parametrize("file", TABLE)
def test_the_table_of_the_data_set_follows(shared_data: Path, file: str) -> None:
    sets = read_poison_texts(shared_data / file)
    for name, passages, expected in TABLE[file]:
        texts = next(iter(sets.values())) if name is None else sets[name]
        found = profile("x", texts, clean_lengths([20, 100])).containment
        whole = sum(f" {profile_text(t.question)} " in f" {profile_text(t.text)} " for t in texts)
        assert found.n == passages
        assert whole / passages == pytest.approx(expected, abs=5.1e-4), name
        assert found.count == whole + RUNS_ON.get(file, 0), name


def test_the_rungs_take_the_cues_of_the_released_texts_and_keep_their_payloads(
    shared_data: Path,
) -> None:
    file = shared_data / "poisonedrag" / "targets-nq.jsonl"
    [(_, texts)] = read_poison_texts(file, join=build_black_box).items()
    clean = read_clean_texts(shared_data / "nq-gold" / "corpus.jsonl.gz")
    lengths = lengths_of(each.text for each in clean)
    ladder = Ladder(lengths=lengths, pool=filler_pool(clean), seed=1)
    found = {}
    for rung in ("template", "prefix_removed", "length_matched", "both"):
        edits = [ladder.edit(text, rung) for text in texts]
        assert all(edit.possible and edit.payload_intact for edit in edits)
        edited = [with_text(t, e.text or "") for t, e in zip(texts, edits, strict=True)]
        found[rung] = profile("poisonedrag", edited, lengths)
    contained = {rung: each.containment.value for rung, each in found.items()}
    assert contained == {
        "template": 1.0, "prefix_removed": 0.0, "length_matched": 1.0, "both": 0.0
    }  # fmt: skip
    inside = {rung: each.overlap.count for rung, each in found.items()}
    assert inside == {
        "template": 500, "prefix_removed": 380, "length_matched": 500, "both": 500
    }  # fmt: skip
