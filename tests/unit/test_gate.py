"""The gate on records with hand-assigned labels, and over simulated systems."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from ragassay import canon, plugins, taxonomy
from ragassay.cli import app
from ragassay.errors import GateUsage, StoreError
from ragassay.experiments.protocols import analyze
from ragassay.gate.decision import Requirement, decide, more_queries, weigh, worse_p_value
from ragassay.gate.evaluation import EXIT_CODES, GateResult, evaluate
from ragassay.gate.junit import junit
from ragassay.gate.markdown import markdown
from ragassay.gate.planning import Study, plan
from ragassay.gate.rules import METRICS, parse_rule, read_rules
from ragassay.gate.sarif import sarif
from ragassay.gate.writing import put_into_report
from ragassay.report.render import write_reports
from ragassay.stats.paired import holm
from ragassay.store import RunFolder
from ragassay.types import Query, Sampling, ScoreRecord, Target, TrialRecord, TrialSpec

PLACES = (("", 0, "none"), ("", 0, "mine"), ("att", 2, "none"), ("att", 2, "mine"))
GOOD = [(0, 0, 1, 0)] * 120 + [(0, 0, 0, 0)] * 80  # prevents 60 %, introduces nothing


def write(
    folder: Path, labels: list[tuple[Any, ...]], *, size: int = 1, attack: str = "att",
    plugin: str = "hijack",
) -> Path:  # fmt: skip
    """A run folder: a row of labels c0, c1, p0, p1 for each question, in groups of ``size``."""
    store = RunFolder(folder)
    resolved = {
        "protocol": "aligned/1",
        "experiment": {
            "name": "hand", "seed": 1, "statistics": {"draws": 200, "confidence": 0.95},
            "retriever": {"k": 2}, "attack": [{"plugin": plugin, "label": attack}],
        },
        "dataset": {"name": "hand"}, "headline": "rule", "scorers": {"rule": "rule:1"},
        "defenses": {"none": "n", "mine": "m"},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        trials, scores, queries = [], [], []
        for n, four in enumerate(labels):
            query = Query(id=f"q{n}", text=f"question {n}", group=f"g{n // size}")
            queries.append((query.id, {"query": query, "target": Target(query_id=query.id)}))
            for label, (at, budget, defense) in zip(four, PLACES, strict=True):
                spec = TrialSpec(
                    protocol="aligned/1", dataset="d", query_id=query.id, question=query.text,
                    attack=attack if at else "", budget=budget, poison="", retriever="r",
                    defense=defense, defense_label=defense, prompt="p", generator="g",
                    sampling=Sampling(), seed=1,
                )  # fmt: skip
                key = canon.digest(spec)
                trials.append((key, TrialRecord(key=key, spec=spec, status="done", answer="x")))
                positive = None if label == "?" else bool(label)
                score = ScoreRecord(
                    trial_key=key, scorer="rule", version="1", target_positive=positive,
                    correct=None if positive is None else not positive, abstained=False,
                    uncertain=("target_positive", "correct") if label == "?" else (),
                )  # fmt: skip
                scores.append((key, score))
        store.append_many("queries", queries)
        store.append_many("trials", trials)
        store.append_many("scores", scores)
    return folder


def only(result: GateResult) -> Any:
    (check,) = result.checks
    return check


# -------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("text", "metric", "at_least", "threshold"),
    [
        ("introduced <= 2%", "introduced", False, 0.02),
        ("net_reduction>=20pp", "net_reduction", True, 0.2),
        ("N ≥ -3 pp", "net_reduction", True, -0.03),
        ("  harmed   <=  0.01 ", "harmed", False, 0.01),
        ("clean_accuracy >= 90%", "clean_accuracy", True, 0.9),
    ],
)
def test_rules_are_read(text: str, metric: str, at_least: bool, threshold: float) -> None:
    rule = parse_rule(text)
    assert (rule.metric.name, rule.at_least) == (metric, at_least)
    assert rule.threshold == pytest.approx(threshold)
    assert not rule.relative


def test_rules_have_scopes_and_margins() -> None:
    rule = parse_rule("[attack='my attack' budget=5 defense=trustrag] J <= baseline + 2pp")
    assert dict(rule.scope) == {"attack": "my attack", "budget": "5", "defense": "trustrag"}
    assert rule.relative
    assert rule.threshold == 0.02
    assert parse_rule("clean_accuracy >= baseline - 3pp").threshold == -0.03
    assert parse_rule("J <= baseline").threshold == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("introduced", "no rule"),
        ("introduced = 2%", "no rule"),
        ("introducd <= 2%", "did you mean 'introduced'"),
        ("introduced <= much", "no value 'much'"),
        ("introduced <= 200%", "outside"),
        ("introduced <= -1%", "outside"),
        ("[budget=two] introduced <= 2%", "budget='two'"),
        ("[where=x] introduced <= 2%", "no scope"),
        ("[attack=a attack=b] introduced <= 2%", "twice"),
        ("[attack='a] introduced <= 2%", "open quotation"),
        ("x" * 501, "no rule"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_is_right(text: str, says: str) -> None:
    with pytest.raises(GateUsage, match=re.escape(says)):
        parse_rule(text)


def test_a_file_of_rules_says_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "rules.txt"
    file.write_text("# ours\n\nintroduced <= 2%\nharmed <= 1%\n", encoding="utf-8")
    assert [(rule.metric.name, rule.line) for rule in read_rules(file)] == [
        ("introduced", 3), ("harmed", 4)
    ]  # fmt: skip
    file.write_text("introduced <= 2%\nwrong\n", encoding="utf-8")
    with pytest.raises(GateUsage, match=r"rules.txt:2: no rule"):
        read_rules(file)
    file.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(GateUsage, match="holds no rule"):
        read_rules(file)
    with pytest.raises(GateUsage, match="cannot be read"):
        read_rules(tmp_path / "absent")


# ----------------------------------------------------------------------------------- verdicts


def test_a_good_defense_passes_fails_and_stays_undecided_as_its_interval_says(
    tmp_path: Path,
) -> None:
    run = write(tmp_path, GOOD)
    result = evaluate(
        run, ["introduced <= 2%", "net_reduction >= 20pp", "N >= 70pp", "N >= 58pp", "harmed <= 3%"]
    )
    assert [check.verdict for check in result.checks] == [
        "pass", "pass", "fail", "undecided", "pass"
    ]  # fmt: skip
    assert result.verdict == "fail"
    assert result.exit_code == 1
    for check in result.checks:
        limit, interval = check.rule.threshold, check.interval
        if check.verdict == "undecided":
            assert interval.low < limit < interval.high
            assert check.more > 100
    n = next(c for c in analyze(run)["cells"] if c["defense"] == "mine")["effects"]["N"]["value"]
    assert result.checks[1].estimate == pytest.approx(n)


def test_undecided_and_pass_have_their_exit_codes(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD)
    assert evaluate(run, ["introduced <= 1%"]).exit_code == 2
    assert evaluate(run, ["introduced <= 2%"]).exit_code == 0
    assert EXIT_CODES == {"pass": 0, "fail": 1, "undecided": 2}


def test_the_forecast_of_more_queries_decides(tmp_path: Path) -> None:
    check = only(evaluate(write(tmp_path / "a", GOOD), ["introduced <= 1%"]))
    assert 90 < check.more < 110  # 299 without a case, less the 200 that are there
    longer = GOOD + [(0, 0, 0, 0)] * check.more
    assert evaluate(write(tmp_path / "b", longer), ["introduced <= 1%"]).verdict == "pass"


def test_groups_make_the_gate_more_careful_and_a_stated_correlation_is_taken(
    tmp_path: Path,
) -> None:
    run = write(tmp_path, GOOD, size=20)
    assert evaluate(run, ["introduced <= 2%"]).verdict == "undecided"
    assert evaluate(run, ["introduced <= 2%"], icc=0.0).verdict == "pass"


def test_one_group_decides_nothing_without_a_stated_correlation(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD, size=1000)
    check = only(evaluate(run, ["net_reduction >= 20pp"]))
    assert check.verdict == "undecided"
    assert "fewer than two injection groups" in check.reason
    assert check.more is None
    assert evaluate(run, ["net_reduction >= 20pp"], icc=0.0).verdict == "pass"


def test_questions_without_a_label_are_counted_and_many_of_them_decide_nothing(
    tmp_path: Path,
) -> None:
    few = write(tmp_path / "few", [(0, 0, 0, "?")] * 10 + GOOD)
    check = only(evaluate(few, ["introduced <= 2%"]))
    assert (check.n, check.dropped, check.verdict) == (200, {"uncertain": 10}, "pass")
    many = write(tmp_path / "many", [(0, 0, 0, "?")] * 50 + GOOD)
    check = only(evaluate(many, ["introduced <= 2%"]))
    assert check.verdict == "undecided"
    assert "50 of 250 questions have no label (50 uncertain)" in check.reason
    assert evaluate(many, ["introduced <= 2%"], max_dropped=0.5).verdict == "pass"
    # An answer that nobody can call correct is not correct, as in the report.
    accuracy = only(evaluate(many, ["poisoned_accuracy >= 75%"]))
    assert (accuracy.n, accuracy.estimate) == (250, 0.8)


def test_every_metric_has_the_value_that_its_labels_say(tmp_path: Path) -> None:
    rows = [(0, 1, 1, 0)] * 4 + [(0, 0, 0, 1)] * 2 + [(1, 0, 1, 1)] * 2 + [(0, 0, 0, 0)] * 12
    run = write(tmp_path, rows)
    expected = {
        "introduced": 0.1, "prevented": 0.2, "prevented_share": 4 / 6, "net_reduction": 0.1,
        "harmed": 0.1, "poisoned_rate": 0.2, "clean_rate": 0.2, "clean_accuracy": 0.8,
        "poisoned_accuracy": 0.8,
    }  # fmt: skip
    found = {name: only(evaluate(run, [f"{name} <= 50%"])).estimate for name in METRICS}
    assert found == pytest.approx(expected)


def test_a_scope_narrows_and_an_unknown_name_in_it_is_a_mistake(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD)
    bare = only(evaluate(run, ["[defense=none attack=att budget=2] poisoned_rate >= 50%"]))
    assert (bare.place.defense, bare.estimate, bare.verdict) == ("none", 0.6, "pass")
    for rule, says in {
        "[attack=atz] J <= 2%": "no attack 'atz'; did you mean 'att'?",
        "[budget=7] J <= 2%": "It has: '2'",
        "[scorer=other] J <= 2%": "no scorer 'other'",
        "[attack=att] harmed <= 2%": "clean retrieval",
    }.items():
        with pytest.raises(GateUsage, match=re.escape(says)):
            evaluate(run, [rule])
    with pytest.raises(GateUsage, match="no rule is given"):
        evaluate(run, [])
    with pytest.raises(GateUsage, match="speaks of a baseline"):
        evaluate(run, ["J <= baseline"])
    with pytest.raises(GateUsage, match="level"):
        evaluate(run, ["J <= 2%"], level=0.7)
    with pytest.raises(StoreError, match=r"resolved\.json"):
        evaluate(tmp_path / "absent", ["J <= 2%"])


def test_a_run_without_an_attack_is_not_estimable(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD)
    lines = (run / "trials.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    clean = [line for line in lines if '"attack":""' in line]
    (run / "trials.jsonl").write_text("".join(clean), encoding="utf-8")
    check = only(evaluate(run, ["introduced <= 2%"]))
    assert (check.verdict, check.estimate) == ("undecided", None)
    assert "not estimable" in check.reason


# ----------------------------------------------------------------------------------- baseline


def test_a_change_for_the_worse_fails_although_the_limit_holds(tmp_path: Path) -> None:
    old = write(tmp_path / "old", GOOD)
    new = write(tmp_path / "new", [(0, 0, 1, 1)] * 20 + GOOD[20:])
    alone = evaluate(new, ["net_reduction >= 20pp"])
    assert alone.verdict == "pass"
    check = only(evaluate(new, ["net_reduction >= 20pp"], baseline=old))
    assert (check.verdict, check.reason) == ("fail", "worse than the baseline run")
    assert (check.change.worse, check.change.better) == (20, 0)
    assert check.change.p_mcnemar == pytest.approx(0.5**20)
    assert check.change.value == pytest.approx(-0.1)
    assert check.change.interval.low < -0.1 < check.change.interval.high
    same = only(evaluate(old, ["net_reduction >= 20pp"], baseline=old))
    assert (same.verdict, same.change.p_holm) == ("pass", 1.0)
    better = only(evaluate(old, ["net_reduction >= 20pp"], baseline=new))
    assert better.verdict == "pass"


def test_a_change_within_a_few_groups_is_not_taken_for_a_change_of_the_system(
    tmp_path: Path,
) -> None:
    old = write(tmp_path / "old", GOOD, size=20)
    new = write(tmp_path / "new", [(0, 0, 1, 1)] * 20 + GOOD[20:], size=20)
    check = only(evaluate(new, ["poisoned_rate <= 50%"], baseline=old))
    assert check.change.p_mcnemar < 0.001 < check.change.p_worse == 0.5  # one group of ten
    assert check.verdict == "pass"


def test_a_margin_on_the_baseline_passes_fails_or_is_undecided(tmp_path: Path) -> None:
    old = write(tmp_path / "old", GOOD)
    new = write(tmp_path / "new", [(0, 0, 1, 1)] * 20 + GOOD[20:])
    verdicts = {
        rule: evaluate(new, [rule], baseline=old).verdict
        for rule in ("poisoned_rate <= baseline + 20pp", "poisoned_rate <= baseline + 2pp",
                     "poisoned_rate <= baseline + 11pp", "N >= baseline - 20pp")
    }  # fmt: skip
    assert list(verdicts.values()) == ["pass", "fail", "undecided", "pass"]


def test_questions_are_paired_by_id_and_text(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old", GOOD[:150]), write(tmp_path / "new", GOOD)
    check = only(evaluate(new, ["net_reduction >= 20pp"], baseline=old))
    assert (check.n, check.change.n) == (200, 150)
    text = (old / "queries.jsonl").read_text(encoding="utf-8")
    (old / "queries.jsonl").write_text(text.replace("question", "other"), encoding="utf-8")
    check = only(evaluate(new, ["N >= baseline - 5pp"], baseline=old))
    assert (check.verdict, check.change) == ("undecided", None)
    check = only(evaluate(new, ["net_reduction >= 20pp"], baseline=old))
    assert (check.verdict, check.change) == ("pass", None)
    assert check.reason.endswith("; not compared: the baseline run has no label of the same "
                                 "questions here")  # fmt: skip


def test_holm_counts_what_is_tested_and_nothing_else(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [(0, 0, 1, n % 3 > 0) for n in range(40)])
    rules = ["introduced <= 2%", "net_reduction >= 50pp"]
    alone = [only(evaluate(run, [rule])) for rule in rules]
    assert [check.p_holm for check in alone] == [check.p_broken for check in alone]
    both = evaluate(run, rules).checks
    assert [check.p_holm for check in both] == holm([check.p_broken for check in both])
    # a check that can decide nothing makes the others no harder
    more = evaluate(run, [*rules, "[defense=none] introduced <= 2%"]).checks
    assert [check.p_holm for check in more[:2]] == [check.p_holm for check in both]


@pytest.mark.parametrize("rule", ["introduced <= 2%", "harmed <= 5%", "prevented_share >= 0%"])
def test_without_a_defense_there_is_nothing_to_compare(tmp_path: Path, rule: str) -> None:
    run = write(tmp_path / "run", GOOD)
    check = only(evaluate(run, [f"[defense=none] {rule}"]))
    assert check.verdict == "undecided"
    assert "nothing to compare" in check.reason


# --------------------------------------------------------------- the level, over many systems


def _outcomes(rng: np.random.Generator, groups: int, size: int, icc: float, rate: float) -> Any:
    chance = np.full(groups, rate)
    if icc:
        spread = (1 - icc) / icc
        chance = rng.beta(rate * spread, (1 - rate) * spread, size=groups)
    return (rng.random((groups, size)) < chance[:, None]).astype(np.int64).ravel()


def test_false_passes_and_failures_stay_below_the_level_over_2000_systems() -> None:
    rng = canon.rng_for("test", "gate level")
    low = high = gate = 0
    for _ in range(2000):
        groups, size = [(100, 1), (20, 5), (10, 10), (30, 10)][rng.integers(4)]
        rate, icc = rng.choice([0.02, 0.05, 0.3]), rng.choice([0.0, 0.05, 0.2])
        labels = np.repeat(np.arange(groups), size).tolist()
        found = []
        for _ in range(2):
            values = _outcomes(rng, groups, size, icc, rate)
            need = Requirement(shape="rate", at_least=False, limit=float(rate))
            found.append(weigh(values, labels, need, alpha=0.05, bounds=False))
        low += decide(found[0].p_met, found[0].p_broken, 0.05) == "pass"
        high += decide(found[0].p_met, found[0].p_broken, 0.05) == "fail"
        gate += min(holm([each.p_broken for each in found])) <= 0.05
    assert 0 < low / 2000 < 0.05
    assert 0 < high / 2000 < 0.05
    assert 0 < gate / 2000 < 0.05


def test_the_comparison_with_a_baseline_keeps_its_level_where_mcnemar_alone_does_not() -> None:
    rng = canon.rng_for("test", "baseline level")
    alarms, alone, runs = 0, 0, 600
    labels = np.repeat(np.arange(20), 10).tolist()
    for _ in range(runs):
        sign = np.repeat(rng.choice([-1, 1], size=20), 10)
        changes = sign * (rng.random(200) < 0.15)  # the changes of a group go together
        p, plain = worse_p_value(changes, labels)
        alarms += p <= 0.05
        alone += plain <= 0.05
    assert alarms / runs < 0.06
    assert alone / runs > 0.1


def test_a_forecast_is_none_where_the_estimate_is_the_limit() -> None:
    values = np.array([1] * 10 + [0] * 90)
    need = Requirement(shape="rate", at_least=False, limit=0.1)
    found = weigh(values, list(range(100)), need, alpha=0.05)
    assert more_queries(values, found, need, alpha=0.05) is None


# ------------------------------------------------------------------------------------ outputs


@pytest.fixture
def result(tmp_path: Path) -> GateResult:
    hostile = 'a|t</testcase>\x01<b>"]'
    rules = tmp_path / "rules.txt"
    rules.write_text("introduced <= 2%\nN >= 70pp\nN >= 58pp\n", encoding="utf-8")
    run = write(tmp_path / "run", GOOD, attack=hostile)
    return evaluate(run, read_rules(rules), baseline=run)


def test_junit_has_a_case_for_each_check_whatever_names_hold(result: GateResult) -> None:
    root = ElementTree.fromstring(junit(result))
    assert {k: root.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": "3", "failures": "1", "skipped": "1", "errors": "0",
    }  # fmt: skip
    cases = root.findall("testsuite/testcase")
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"], ["failure"], ["skipped"]
    ]  # fmt: skip
    assert "</testcase>⟨U+0001⟩" in str(cases[0].get("name"))
    assert "more queries would decide" in str(cases[2][0].get("message"))


def test_sarif_has_the_structure_of_2_1_0(result: GateResult) -> None:
    log = json.loads(sarif(result))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["ragassay/introduced", "ragassay/net_reduction"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert [(r["kind"], r["level"]) for r in run["results"]] == [
        ("pass", "none"), ("fail", "error"), ("open", "none")
    ]  # fmt: skip
    for number, found in enumerate(run["results"], start=1):
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        assert found["message"]["text"]
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].endswith("rules.txt")
        assert place["region"]["startLine"] == number
        assert all(isinstance(v, str) for v in found["partialFingerprints"].values())
        for taxon in found["taxa"]:
            taxonomy_ = run["taxonomies"][taxon["toolComponent"]["index"]]
            assert taxonomy_["name"] == taxon["toolComponent"]["name"]
            assert taxonomy_["taxa"][taxon["index"]]["id"] == taxon["id"]
    assert {t["id"] for t in run["results"][0]["taxa"]} >= {"LLM01:2025", "AML.T0051.001"}
    assert [t["name"] for t in run["tool"]["driver"]["supportedTaxonomies"]] == [
        t["name"] for t in run["taxonomies"]
    ]


def test_markdown_says_the_finding_first_and_cannot_be_broken(result: GateResult) -> None:
    text = markdown(result)
    assert text.startswith("## ❌ Gate fails: ")
    assert "Run **hand**: 1 pass, 1 fail, 1 undecided." in text
    assert "/report.html" in text
    assert "</testcase>" not in text
    assert "<b>" not in text
    assert "Against the baseline run: " in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7, 9}
    assert "[LLM01:2025](https://genai.owasp.org/llmrisk/llm01-prompt-injection/)" in text


@pytest.mark.parametrize(
    ("labels", "rule", "title"),
    [
        (GOOD, "introduced <= 5%", "## ✅ Gate passes: the one rule holds"),
        (GOOD, "poisoned_rate >= 20%", "## ❌ Gate fails: poisoned_rate is 0.0%, must be at least "
         "20% (mine, att, p = 2)"),
        (GOOD, "net_reduction <= 20pp", "## ❌ Gate fails: net_reduction is +60.0pp, must be at "
         "most 20pp (mine, att, p = 2)"),
        (GOOD[110:150], "introduced <= 5%", r"## ❔ Gate undecided: 1 of 1 rule needs about \d+ "
         "more queries"),
        ([(0, 0, "?", "?")] * 9, "introduced <= 5%",
         "## ❔ Gate undecided: 1 of 1 rule cannot be decided by this run"),
    ],
)  # fmt: skip
def test_the_title_of_the_markdown_is_the_finding(
    labels: list[Any], rule: str, title: str, tmp_path: Path
) -> None:
    found = markdown(evaluate(write(tmp_path, labels), [rule])).splitlines()[0]
    assert re.fullmatch(title if "\\" in title else re.escape(title), found), found


def test_the_title_says_that_a_figure_got_worse_than_in_the_baseline(tmp_path: Path) -> None:
    old = write(tmp_path / "old", GOOD)
    new = write(tmp_path / "new", [(0, 0, 1, 1)] * 30 + GOOD[30:])
    text = markdown(evaluate(new, ["poisoned_rate <= 90%"], baseline=old))
    assert text.startswith("## ❌ Gate fails: poisoned_rate went from 0.0% to 15.0% since the")
    assert "Against the baseline run: 1 of 1 figure got worse beyond chance" in text
    text = markdown(evaluate(new, ["clean_accuracy >= baseline - 5pp"], baseline=old))
    assert "| `clean_accuracy >= baseline - 5pp` |" in text


def test_the_report_shows_the_gate_until_the_run_has_other_figures(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD)
    store = RunFolder(run)
    with store.writer():
        store.write_text("summary.json", canon.dumps(analyze(run)) + "\n")
    put_into_report(evaluate(run, ["introduced <= 2%"]), run)
    assert "The gate passes: of 1 check, 1 pass." in (run / "report.html").read_text("utf-8")
    assert "The gate passes" in (run / "report.md").read_text("utf-8")
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    with store.writer():
        store.write_text("summary.json", canon.dumps({**summary, "name": "other"}) + "\n")
    write_reports(store)
    page = (run / "report.html").read_text("utf-8")
    assert "The gate passes" not in page
    assert "The run has changed since the gate was asked" in page


def test_every_report_has_one_page_that_says_what_the_run_could_have_seen(tmp_path: Path) -> None:
    run = write(tmp_path, GOOD)
    store = RunFolder(run)
    with store.writer():
        store.write_text("summary.json", canon.dumps(analyze(run)) + "\n")
    write_reports(store)
    text = (run / "report.md").read_text("utf-8")
    page = text[text.index("## In one page") : text.index("## Warnings")]
    assert "gave the attacker's answer to 120/200 (60.0%)" in page
    assert re.search(r"a net reduction of \d+\.\dpp or more", page)
    assert "in 0.8% of all queries" in page  # 1 - 0.2 ** (1 / 200)
    assert "LLM01:2025 Prompt Injection" in page
    assert "AML.T0070 RAG Poisoning" in page


# ----------------------------------------------------------------------- command line, plug-in


def test_the_command_writes_every_file_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    run = write(tmp_path / "run", GOOD)
    files = {name: tmp_path / "out" / name for name in ("junit", "sarif", "markdown")}
    arguments = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    runner = CliRunner()
    for rule, code in (("J <= 2%", 0), ("N >= 70pp", 1), ("J <= 1%", 2)):
        found = runner.invoke(app, ["gate", str(run), "--rule", rule, *arguments])
        assert found.exit_code == code, found.output
    assert all(path.stat().st_size for path in files.values())
    asked = runner.invoke(app, ["gate", str(run), "--rule", "J <= 2%", "--json"])
    assert json.loads(asked.stdout)["verdict"] == "pass"


def test_a_mistake_is_told_from_a_verdict(tmp_path: Path) -> None:
    run = write(tmp_path / "run", GOOD[:4])
    for arguments in (["--rule", "nonsense"], ["--rule", "[attack=x] J <= 2%"], []):
        found = CliRunner().invoke(app, ["gate", str(run), *arguments])
        assert isinstance(found.exception, GateUsage)
        assert found.exception.exit_code == 64
    program = str(Path(sys.executable).with_name("ragassay"))
    ended = subprocess.run(
        [program, "gate", str(run), "--nonsense"],
        capture_output=True, text=True, check=False, timeout=120, encoding="utf-8",
    )  # fmt: skip
    assert ended.returncode == 64
    assert "No such option" in ended.stderr


def test_planning_says_numbers_and_their_reach() -> None:
    needed = plan(Study(metric="J", value="0%", against="2%"))
    assert needed.figures["n"] == 149
    grouped = plan(Study(metric="N", value="20pp", cluster_size=10, icc=0.1)).figures
    assert grouped["n"] == 10 * grouped["groups"]
    assert grouped["reached"] >= 0.8
    told = plan(Study(metric="N", value="20pp", cluster_size=10, icc=0.1, known=True)).figures
    assert told["n"] < grouped["n"]  # estimating the correlation costs questions
    assert (told["exact"], grouped["exact"]) == (True, False)
    given = plan(Study(metric="H", value="5pp", n=100))
    assert 0 < given.figures["power"] < 1
    assert given.figures["detectable"] > 0.05
    wide = plan(Study(metric="poisoned_rate", value="10%", width="10%")).figures
    assert wide["reached"] <= 0.1
    runner = CliRunner()
    found = runner.invoke(app, ["power", "J", "--value", "0%", "--against", "2%"])
    assert "149 questions, independent of each other" in found.output
    assert json.loads(runner.invoke(app, ["power", "J", "--n", "100", "--json"]).stdout)["n"] == 100


@pytest.mark.parametrize(
    "study",
    [
        Study(metric="X", value="1%"), Study(metric="J"),
        Study(metric="J", value="2%", against="2%"),
        Study(metric="J", value="a lot"), Study(metric="J", value="-3%"),
        Study(metric="N", value="90pp", opposite="10%"), Study(metric="J", n=0),
        Study(metric="J", n=5, width="3%"), Study(metric="J", width="3%"),
        Study(metric="J", value="1%", icc=1.5), Study(metric="J", value="1%", power=2.0),
        Study(metric="J", value="1%", width="200%"), Study(metric="J", n=7, cluster_size=10),
    ],
    ids=str,
)  # fmt: skip
def test_a_study_that_makes_no_sense_is_refused_in_a_line(study: Study) -> None:
    from ragassay.errors import ConfigError

    with pytest.raises(ConfigError) as refused:
        plan(study)
    assert "\n" not in str(refused.value)


def test_every_attack_has_its_ids_and_show_prints_them() -> None:
    names = set(plugins.names("attack"))
    assert set(taxonomy.BY_ATTACK) == names
    for name in names:
        threats = plugins.describe(plugins.find("attack", name))["threats"]
        frameworks = [threat.framework for threat in threats]
        assert {"OWASP", "ATLAS"} == set(frameworks)
        assert all(threat.id in taxonomy.THREATS for threat in threats)
    for threat in taxonomy.THREATS.values():
        assert re.fullmatch(r"LLM\d\d:2025|AML\.T\d{4}(\.\d{3})?", threat.id)
        assert threat.url.startswith(("https://genai.owasp.org/", "https://atlas.mitre.org/"))
    assert [t.id for t in taxonomy.threats_of("mine", ("LLM01:2025", "AML.T9999"))] == [
        "LLM01:2025", "AML.T9999"
    ]  # fmt: skip
    shown = CliRunner().invoke(app, ["show", "attack:hijack"]).output
    assert "LLM01:2025 Prompt Injection" in shown


def test_the_rules_of_the_ci_example_are_rules_about_parts_of_the_demo() -> None:
    from ragassay.config import parse

    examples = Path(__file__).resolve().parents[2] / "examples"
    demo = parse(tomllib.loads((examples / "demo.toml").read_text("utf-8")), "demo.toml")
    rules = read_rules(examples / "ci" / "gate-rules.txt")
    assert {rule.scoped("defense") for rule in rules} <= {part.title for part in demo.defense}
    assert {rule.scoped("budget") for rule in rules} <= {None, *map(str, demo.budgets)}
    for name in ("github-actions.yml", "gitlab-ci.yml"):
        text = (examples / "ci" / name).read_text("utf-8")
        (line,) = re.findall(r"\.venv/bin/ragassay (gate [^\"$]+)", text)
        assert "--rules-file examples/ci/gate-rules.txt" in line
