"""The pytest plug-in in test sessions of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of 200 questions whose defense prevents 60 % and introduces nothing."""
    from ragassay import canon
    from ragassay.store import RunFolder
    from ragassay.types import Query, Sampling, ScoreRecord, Target, TrialRecord, TrialSpec

    store = RunFolder(tmp_path_factory.mktemp("gate") / "run")
    resolved = {
        "experiment": {"name": "hand", "seed": 1}, "dataset": {"name": "hand"},
        "headline": "rule", "scorers": {"rule": "1"}, "defenses": {"none": "n", "mine": "m"},
    }  # fmt: skip
    places = (("", 0, "none"), ("", 0, "mine"), ("att", 2, "none"), ("att", 2, "mine"))
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        for n in range(200):
            query = Query(id=f"q{n}", text=f"question {n}", group=f"g{n}")
            store.append("queries", query.id, {"query": query, "target": Target(query_id=query.id)})
            for attack, budget, defense in places:
                spec = TrialSpec(
                    protocol="aligned/1", dataset="d", query_id=query.id, question=query.text,
                    attack=attack, budget=budget, poison="", retriever="r", defense=defense,
                    defense_label=defense, prompt="p", generator="g", sampling=Sampling(), seed=1,
                )  # fmt: skip
                key = canon.digest(spec)
                record = TrialRecord(key=key, spec=spec, status="done", answer="x")
                store.append("trials", key, record)
                positive = n < 120 and budget > 0 and defense == "none"
                store.append("scores", key, ScoreRecord(
                    trial_key=key, scorer="rule", version="1", target_positive=positive,
                    correct=not positive, abstained=False,
                ))  # fmt: skip
    return str(store.path)


def test_the_marker_and_the_fixture_hold_a_run_against_rules(
    pytester: pytest.Pytester, run_folder: str
) -> None:
    pytester.makepyfile(f"""
        import pytest

        RUN = {run_folder!r}

        @pytest.mark.ragassay(RUN, rules=["introduced <= 2%", "net_reduction >= 20pp"])
        def test_passes(ragassay):
            assert ragassay.check().verdict == "pass"

        @pytest.mark.ragassay(RUN, rules=["net_reduction >= 70pp"])
        def test_fails(ragassay):
            ragassay.check()

        @pytest.mark.ragassay(RUN, rules=["introduced <= 1%"])
        def test_undecided_fails(ragassay):
            ragassay.check()

        @pytest.mark.ragassay(RUN, rules=["introduced <= 1%"], undecided="skip")
        def test_undecided_skips(ragassay):
            ragassay.check()

        def test_without_a_marker(ragassay):
            assert ragassay.check(RUN, ["introduced <= 2%"], baseline=RUN).exit_code == 0

        @pytest.mark.ragassay(RUN, rule="introduced <= 2%")
        def test_a_wrong_option(ragassay):
            pass
    """)
    result = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "-rs")
    result.assert_outcomes(passed=2, failed=2, skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*FAIL: net_reduction >= 70pp*att, p = 2; mine; rule*"])
    result.stdout.fnmatch_lines(["*about * more queries would decide*"])
    result.stdout.fnmatch_lines(["*has no option 'rule'*"])


def test_the_marker_is_known_without_a_configuration(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.ragassay(run, rules,*"])


def test_importing_the_plug_in_imports_nothing_of_weight() -> None:
    code = (
        "import sys, ragassay.pytest_plugin; "
        "heavy = {'numpy', 'scipy', 'torch', 'pydantic', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stderr
