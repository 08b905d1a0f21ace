"""What follows from the released PoisonArena data, and what the command says of it."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ragassay.arena.expectation import expected_round_figures
from ragassay.arena.pool import QueryPool, restricted
from ragassay.arena.released import (
    ATTACKERS,
    data_folder,
    evaluation_half,
    read_paraphrases,
    read_questions,
)
from ragassay.arena.released_loop import ReleasedLoop, _PythonDraws, replay
from ragassay.arena.reproduction import Reproduction, reproduce
from ragassay.arena.schedule import Design
from ragassay.cli import app
from ragassay.errors import DataError

FIGURES = {"1": 7, "4": 7, "11": 7, "18": 7, "19": 126}


@pytest.fixture(scope="module")
def released(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue("shared_data") / "poisonarena"
    if not folder.is_dir():
        pytest.skip(f"the PoisonArena files are not at {folder}")
    return folder


@pytest.fixture(scope="module")
def found(released: Path) -> Reproduction:
    return reproduce(released)


@pytest.fixture(scope="module")
def questions(released: Path) -> list[QueryPool]:
    return read_questions(released)


# ------------------------------------------------------------------------------- the figures


def test_every_published_figure_follows_but_the_known_exception(found: Reproduction) -> None:
    assert Counter(row.table for row in found.comparisons) == FIGURES
    assert found.ok
    exceptions = [row for row in found.comparisons if row.status != "agrees"]
    assert [(row.table, row.attacker, row.status) for row in exceptions] == [
        ("4", "garag", "known exception")
    ]
    assert exceptions[0].recomputed == pytest.approx(0.5272, abs=1e-9)
    assert exceptions[0].published == 0.5368
    agreeing = [row for row in found.comparisons if row.status == "agrees"]
    assert len(agreeing) == 153
    for row in agreeing:
        assert row.difference is not None
        assert abs(row.difference) <= 1e-4 + 1e-9, row


def test_all_rows_of_table_19_are_pairs_that_occur_both_ways(found: Reproduction) -> None:
    rows = [row for row in found.comparisons if row.table == "19" and row.column == "F1"]
    pairs = {(row.attacker, row.against) for row in rows}
    assert len(rows) == len(pairs) == 42
    assert pairs == {(b, a) for a, b in pairs}
    assert {row.n for row in rows if "content_poison" not in (row.attacker, row.against)} == {
        2000, 500,
    }  # fmt: skip


def test_the_data_do_not_fit_another_choice_of_answers(released: Path) -> None:
    """With all six answers instead of five, Table 1 does not follow: the check can fail."""
    from ragassay.arena.retrieval import competition_figures

    pools = read_questions(released)
    six = competition_figures(pools, ["poisonedrag_white"], 5)["poisonedrag_white"]
    assert abs(six.figures.f1 - 0.9776) > 5e-4


def test_only_the_evaluation_half_of_the_paraphrases_counts(released: Path) -> None:
    everything = read_paraphrases(released)
    half = evaluation_half(everything)
    assert (len(everything), len(half)) == (1000, 500)
    assert set(Counter(pool.cluster for pool in half).values()) == {5}
    assert {int(pool.query_id[1:]) % 10 for pool in half} == {5, 6, 7, 8, 9}


def test_expected_m_f1_is_exact_and_ordered_like_the_published_one(
    questions: list[QueryPool],
) -> None:
    """Table 2 is from sampled rounds of another draw, so only its order is compared."""
    exact = expected_round_figures(questions, Design(largest=6), 5)
    assert sum(e.probability for e in exact.values()) == pytest.approx(4.0)  # mean of 2 to 6
    order = sorted(exact, key=lambda name: -exact[name].figures.f1)
    assert order == [
        "gaslite", "corpus_poison", "poisonedrag_white", "advdecoding", "poisonedrag_black",
        "garag", "content_poison",
    ]  # fmt: skip
    assert exact["content_poison"].queries == 20


# ------------------------------------------------------------------------- the released loop


def test_draws_are_those_of_pythons_generator() -> None:
    for seed in (0, 42, 2**32 - 1):
        ours, python = _PythonDraws(seed), random.Random(seed)
        for n in (1, 2, 3, 7, 100, 2**31 + 5):
            assert [ours.below(n) for _ in range(500)] == [python.randrange(n) for _ in range(500)]
        mine, theirs = list(range(60)), list(range(60))
        ours.shuffle(mine)
        python.shuffle(theirs)
        assert mine == theirs
        assert [ours.sample(range(7), m) for m in range(1, 7)] == [
            python.sample(range(7), m) for m in range(1, 7)
        ]
        with pytest.raises(ValueError, match="nothing to draw from"):
            ours.choice("")
        assert ours.choice("abcdef") == python.choice("abcdef")


@pytest.mark.parametrize("attackers", [4, None])
def test_the_released_loop_keeps_its_rules(
    questions: list[QueryPool], attackers: int | None
) -> None:
    loop = ReleasedLoop(attackers=attackers, rounds=300, validations=50)
    plays = list(replay(questions, loop))
    assert len(plays) == loop.prompts == 450
    pools = {pool.query_id: pool for pool in questions}
    without = [(i, q) for i, (q, a) in enumerate(plays) if "content_poison" not in a]
    train = {q for i, q in without if i < 100}
    checks = {q for i, q in without if 100 <= i < 150}
    assert train
    assert checks
    assert not train & checks
    for query_id, assignment in plays:
        assert len(assignment) == attackers or attackers is None
        assert 2 <= len(assignment) <= 6
        answers = [p for p in assignment.values() if p is not None]
        assert len(set(answers)) == len(answers)
        assert pools[query_id].positions("content_poison") or "content_poison" not in assignment


def test_too_few_answers_for_the_released_loop_are_an_error(questions: list[QueryPool]) -> None:
    few = [restricted(pool, {0, 1, 2}) for pool in questions]
    with pytest.raises(DataError, match="deals 4 answers, but there are documents for 3 of 'test"):
        next(replay(few, ReleasedLoop()))
    assert next(replay(few, ReleasedLoop(attackers=3)))


def test_rounds_with_contentpoison_are_validated_on_questions_of_the_other_rounds(
    questions: list[QueryPool],
) -> None:
    """The release splits its questions apart from the rest, so that the two splits overlap."""
    plays = list(replay(questions, ReleasedLoop(rounds=400, validations=100)))
    rounds = {q for i, (q, _) in enumerate(plays) if i % 200 < 100}
    partial = {q for i, (q, a) in enumerate(plays) if i % 200 >= 100 and "content_poison" in a}
    assert len(partial) == 4
    assert rounds & partial


def test_most_prompts_of_the_released_loop_are_repeated(found: Reproduction) -> None:
    four = found.prompts["4 attackers"]
    assert (four.plays, four.distinct) == (44_000, 4_749)
    assert (four.removals_at_most, four.removals_in_context) == (24_906, 253)
    assert four.distinct_with_removals == 4_794
    drawn = found.prompts["2 to 6 attackers"]
    assert (drawn.plays, drawn.distinct, drawn.distinct_with_removals) == (44_000, 5_760, 5_983)


# ------------------------------------------------------------------------------- the command


def test_the_command_prints_both_numbers_and_their_difference(released: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "poisonarena", "--data", str(released.parent)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    rows = [line for line in lines if line.split(" ")[0] in FIGURES]
    assert len(rows) == 154
    assert any(line.split()[:5] == ["4", "GARAG", "s-F1", "0.5368", "0.5272"] for line in rows)
    assert "153 of 154 figures agree to 1e-4." in lines
    assert any(line.startswith("Known exception: Table 4, GARAG") for line in lines)


def test_json_holds_every_figure_with_its_denominator(
    found: Reproduction, released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragassay.arena.reproduction._prompts", lambda questions: found.prompts)
    command = ["reproduce", "poisonarena", "--data", str(released), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert value == found.to_json()
    assert value["ok"] is True
    assert value["prompts"]["4 attackers"]["distinct"] == 4_749
    assert len(value["figures"]) == 154
    assert all(figure["n"] > 0 for figure in value["figures"])
    assert {"published", "recomputed", "difference", "status"} <= set(value["figures"][0])


# ------------------------------------------------------------------- data that are not right


@pytest.fixture
def copied(released: Path, tmp_path: Path) -> Path:
    for path in released.glob("*nq*"):
        shutil.copyfile(path, tmp_path / path.name)
    return tmp_path


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    lines = [line + "\n" for line in text.removesuffix("\n").split("\n")]
    path.write_bytes(gzip.compress("".join(change(lines)).encode(), compresslevel=1))


def edited(**values: Any) -> Callable[[list[str]], list[str]]:
    """Change keys of the third line."""

    def change(lines: list[str]) -> list[str]:
        row = json.loads(lines[2]) | values
        return [*lines[:2], json.dumps(row) + "\n", *lines[3:]]

    return change


def test_changed_scores_make_the_command_fail_with_exit_code_1(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragassay.arena.reproduction._prompts", lambda questions: {})

    def lower(lines: list[str]) -> list[str]:
        rows = [json.loads(line) for line in lines]
        return [json.dumps(row | {"scores": [0.0] * 5}) + "\n" for row in rows]

    rewrite(copied / "attack-nq-gaslite.jsonl.gz", lower)
    done = CliRunner().invoke(app, ["reproduce", "poisonarena", "--data", str(copied)])
    assert done.exit_code == 1
    assert "differs" in done.output
    assert "figures differ that should agree." in done.output


def test_a_changed_known_exception_is_noticed(copied: Path) -> None:
    rewrite(copied / "serials-nq-garag.jsonl.gz", lambda lines: lines[:50])
    rows = {(r.table, r.attacker): r for r in reproduce(copied, prompts=False).comparisons}
    assert rows["4", "garag"].status == "differs"


def test_an_attacker_without_rows_is_not_estimable_and_differs(copied: Path) -> None:
    """One ContentPoison row is left, on the answer that no table counts."""

    def sixth(lines: list[str]) -> list[str]:
        return [line for line in lines if json.loads(line)["answer_position"] == 6][:1]

    rewrite(copied / "attack-nq-content_poison.jsonl.gz", sixth)
    rows = [row for row in reproduce(copied, prompts=False).comparisons if row.table == "1"]
    lost = [row for row in rows if row.status == "differs"]
    assert [(row.attacker, row.recomputed, row.n) for row in lost] == [("content_poison", None, 0)]
    assert lost[0].difference is None
    with pytest.raises(DataError, match="released loop needs questions on both sides"):
        reproduce(copied)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("attack-nq-gaslite", edited(scores=[1.0]), r":3: found 1 'scores' for 5 documents"),
        ("attack-nq-gaslite", edited(scores=["1"] * 5), r":3: expected a number, found a string"),
        ("attack-nq-gaslite", edited(query_id="other"), r":3: 'query_id' 'other' is not among"),
        ("attack-nq-gaslite", edited(target_answer="?"), r":3: 'target_answer' '\?' is not the"),
        ("attack-nq-gaslite", edited(answer_position=0), r":3: 'answer_position' must be a whole"),
        ("attack-nq-gaslite", edited(answer_position=None), r":3: gaslite needs an 'answer_pos"),
        ("attack-nq-gaslite", edited(method="garag"), r":3: expected rows of the method 'gaslite'"),
        ("attack-nq-garag", edited(answer_position=1), r":3: garag wants no answer"),
        ("attack-nq-gaslite", lambda x: [*x, x[4]], r":601: documents of gaslite for .* twice"),
        ("attack-nq-gaslite", lambda x: [*x[:-1], x[-1][:50]], r":600: the last line is cut off"),
        ("attack-nq-gaslite", lambda x: [], r"the file is empty"),
        ("serials-nq-gaslite", edited(queries=[3]), r":3: 'queries' 1 must be an object"),
        ("serials-nq-gaslite", edited(base_query_id="x"), r":3: 'base_query_id' 'x' is not"),
        (
            "run-nq-serials-contriever",
            edited(scores=list(range(100))),
            r":3: 'scores' must fall from the best",
        ),
        ("run-nq-serials-contriever", lambda x: [*x, x[0]], r":1001: the retrieval of 's0' stands"),
    ],
)
def test_damaged_files_are_named_with_their_line(
    copied: Path, name: str, change: Callable[[list[str]], list[str]], message: str
) -> None:
    rewrite(copied / f"{name}.jsonl.gz", change)
    with pytest.raises(DataError, match=rf"{name}\.jsonl\.gz.*{message}"):
        reproduce(copied, prompts=False)


def test_clean_retrievals_must_cover_all_questions(copied: Path) -> None:
    path = copied / "clean-contexts-nq.jsonl"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:60]), "utf-8")
    with pytest.raises(DataError, match=r"clean-contexts-nq.jsonl:60: .* 40 questions, such as"):
        reproduce(copied, prompts=False)


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_a_missing_file_is_named(copied: Path, attacker: str) -> None:
    (copied / f"attack-nq-{attacker}.jsonl.gz").unlink()
    with pytest.raises(DataError, match=rf"attack-nq-{attacker}.jsonl.gz: no such file"):
        reproduce(copied, prompts=False)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no arena-nq\.jsonl in it"):
        data_folder(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        data_folder(tmp_path / "nothing")
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(DataError, match="is a file, expected a folder"):
        data_folder(tmp_path / "file")
