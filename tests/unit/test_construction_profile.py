"""The construction profile: rules, verdicts, files, and the command."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ragassay.attacks.poisonedrag import build_black_box
from ragassay.cli import app
from ragassay.construction.profile import clean_lengths, lengths_of, plain, profile
from ragassay.construction.texts import PoisonText, read_clean_texts, read_poison_texts
from ragassay.errors import ConfigError, DataError, NotEstimable

CLEAN = clean_lengths(range(10, 101))


def texts(contained: int, of: int, words: int = 50) -> list[PoisonText]:
    return [
        PoisonText(query_id=f"q{i}", question="where is it",
                   text=("where is it." if i < contained else "it is.") + "word " * (words - 3))
        for i in range(of)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("contained", "words", "verdicts"),
    [
        (60, 5, ("saturated", "saturated")),
        (0, 50, ("absent", "absent")),
        (30, 50, ("partial", "absent")),
        (60, 500, ("saturated", "saturated")),
    ],
)
def test_a_cue_saturates_where_the_interval_says_so(
    contained: int, words: int, verdicts: tuple[str, str]
) -> None:
    found = profile("x", texts(contained, 60, words), CLEAN)
    assert (found.verdicts["containment"], found.verdicts["length"]) == verdicts
    assert found.saturated == tuple(
        cue for cue, v in zip(("containment", "length"), verdicts, strict=True) if v == "saturated"
    )


def test_few_passages_do_not_saturate_a_cue() -> None:
    found = profile("x", texts(5, 5), CLEAN)
    assert found.containment.value == 1
    assert found.verdicts["containment"] == "partial"
    alone = [PoisonText(query_id="q", question="where is it", text="where is it")] * 5
    assert profile("x", alone, CLEAN).verdicts["containment"] == "not estimable"


def test_passages_without_a_question_are_in_no_denominator() -> None:
    known = texts(2, 2)
    unknown = [PoisonText(query_id=f"u{i}", question=q, text="some text")
               for i, q in enumerate(("", "?!"))]  # fmt: skip
    found = profile("x", [*known, *unknown], CLEAN)
    assert (found.containment.count, found.containment.n, found.no_question) == (2, 2, 2)
    assert [doc.contains for doc in found.documents] == [True, True, None, None]
    assert found.overlap.n == 4


def test_ends_of_the_range_are_inside_and_the_rest_is_counted_by_side() -> None:
    clean = clean_lengths([150, 150, 150])
    assert (clean.l5, clean.l95, clean.width) == (150, 150, 1.0)
    rows = [PoisonText(query_id=str(n), question="q", text="w " * n) for n in (149, 150, 151)]
    found = profile("x", rows, clean)
    assert (found.below, found.overlap.count, found.above) == (1, 1, 1)
    assert clean_lengths([0, 0, 0, 0, 7]).width is None


def test_a_sample_is_seeded_and_large_enough() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 400, size=5000)
    one = clean_lengths(counts, sample=2000, seed=1)
    assert one.n == 2000
    assert (one.counts == clean_lengths(counts, sample=2000, seed=1).counts).all()
    assert not (one.counts == clean_lengths(counts, sample=2000, seed=2).counts).all()
    with pytest.raises(ValueError, match="at least 2000"):
        clean_lengths(counts, sample=100)
    with pytest.raises(NotEstimable, match="none of 2 clean passages has a word"):
        lengths_of(["", " "])
    with pytest.raises(NotEstimable, match="no passage to profile"):
        profile("x", [], CLEAN)


def test_questions_that_share_passages_are_one_cluster(tmp_path: Path) -> None:
    path = tmp_path / "serial.jsonl"
    rows = [
        {"base_query_id": f"b{b}", "target_answer": "x", "correct_answers": ["y"], "method": "m",
         "answer_position": 1, "docs": [f"text {b}"],
         "queries": [{"query_id": f"b{b}-{i}", "query": f"question {b}"} for i in range(3)]}
        for b in range(4)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    [(_, found)] = read_poison_texts(path).items()
    assert len(found) == 12
    assert profile("m", found, CLEAN).overlap.clusters == 4


def test_ten_thousand_passages_take_about_a_second() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["river", "town", "Bacon,", "wrote", "the", "play.", "in", "1601"])
    rows = [
        PoisonText(query_id=f"q{i // 5}", question=f"who wrote play number {i // 5}?",
                   text=f"who wrote play number {i // 5}?." + " ".join(rng.choice(words, 100)))
        for i in range(10_000)
    ]  # fmt: skip
    before = time.process_time()
    found = profile("x", rows, CLEAN)
    assert time.process_time() - before < 2  # measured: 0.4 s
    assert found.containment.value == 1


# ------------------------------------------------------------------------------------- files


def targets(path: Path) -> Path:
    rows = [
        {"query_id": f"q{i}", "query": f"what is thing {i}", "correct_answers": ["a"],
         "incorrect_answers": ["b"], "poison_passages": [f"It is b, {i}.{n}." for n in range(2)]}
        for i in range(40)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def corpus(path: Path) -> Path:
    lines = "".join(json.dumps({"text": "word " * (20 + i)}) + "\n" for i in range(30))
    path.write_bytes(gzip.compress(lines.encode()))
    return path


def test_a_text_without_its_question_is_joined_and_keeps_its_payload(tmp_path: Path) -> None:
    file = targets(tmp_path / "targets.jsonl")
    [(_, found)] = read_poison_texts(file, join=build_black_box).items()
    assert found[0].text == "what is thing 0.It is b, 0.0."
    assert found[0].payload == "It is b, 0.0."
    whole = tmp_path / "attack.jsonl"
    whole.write_text(json.dumps({
        "query_id": "q", "query": "what", "target_answer": "b", "docs": ["what.It is b."],
    }) + "\n", encoding="utf-8")  # fmt: skip
    with pytest.raises(ConfigError, match="nothing to join"):
        read_poison_texts(whole, join=build_black_box)


def test_clean_texts_come_from_files_and_folders(tmp_path: Path) -> None:
    file = corpus(tmp_path / "corpus.jsonl.gz")
    assert read_clean_texts(tmp_path) == read_clean_texts(file)
    assert read_clean_texts(file)[0].id == "1"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no corpus\.jsonl"):
        read_clean_texts(tmp_path / "empty")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a"}\n{"body": "b"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.jsonl:2"):
        read_clean_texts(bad)


def test_the_command_prints_a_table_or_everything(tmp_path: Path) -> None:
    poison, clean = str(targets(tmp_path / "t.jsonl")), str(corpus(tmp_path / "corpus.jsonl.gz"))
    run = CliRunner().invoke(app, ["profile", poison, "--corpus", clean, "--join", "prefix"])
    assert run.exit_code == 0, run.output
    flat = " ".join(run.output.split())
    assert "1.00 [0.91, 1.00]" in flat
    assert "30 clean passages: l5 = 21.45, l95 = 47.55 words, l95/l5 = 2.22" in flat
    assert "containment" in flat
    assert "[l5, l95]" in flat
    run = CliRunner().invoke(app, ["profile", poison, "--corpus", clean, "--json"])
    (report,) = json.loads(run.output)
    assert report["containment"]["count"] == 0
    assert report["length_overlap"]["below"] == 80
    assert report["saturated"] == ["length"]
    assert len(report["documents"]) == report["passages"] == 80


def test_the_command_takes_an_experiment_and_refuses_small_samples(tmp_path: Path) -> None:
    from ragassay.data.atlas import __file__ as atlas

    poison = str(Path(atlas).with_name("targets.jsonl"))
    experiment = tmp_path / "e.toml"
    experiment.write_text(
        'name = "e"\n[dataset]\nplugin = "atlas"\n[generator]\nplugin = "smollm2"\n',
        encoding="utf-8",
    )
    run = CliRunner().invoke(app, ["profile", poison, "--corpus", str(experiment), "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.output)[0]["passages"] > 0
    run = CliRunner().invoke(
        app, ["profile", poison, "--corpus", str(experiment), "--sample", "10"]
    )
    assert "--sample is 10" in str(run.exception)


def test_a_profile_is_plain_json() -> None:
    json.dumps(plain(profile("x", texts(1, 3), CLEAN)), allow_nan=False)
