"""A run whose records are packed, damaged on the way, indexed and read from afar."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ragassay
from ragassay.cli import app
from ragassay.experiments.setup import load_experiment
from ragassay.store import RunFolder, index, segments

QUESTIONS = 6
EXPERIMENT = """
name = "storage"
budgets = [1]
[dataset]
plugin = "beir"
path = "data"
[retriever]
plugin = "dense"
encoder = "hashing"
[generator]
plugin = "scripted"
script = "extract"
[[defense]]
plugin = "prompt_control_cautious"
[statistics]
draws = 200
"""


def write_data(folder: Path) -> None:
    folder.mkdir()
    towns = range(QUESTIONS)
    corpus = [
        {"_id": f"d{n}", "text": f"The harbor of town{n} was built by builder{n}."} for n in towns
    ]
    asked = [{"_id": f"q{n}", "text": f"Who built the harbor of town{n}?",
              "metadata": {"correct_answers": [f"builder{n}"]}} for n in towns]  # fmt: skip
    targets = [{
        "query_id": f"q{n}", "query": f"Who built the harbor of town{n}?",
        "correct_answers": [f"builder{n}"], "incorrect_answers": [f"rival{n}"],
        "poison_passages": [f"Record: rival{n} built the harbor of town{n}."],
    } for n in towns]  # fmt: skip
    for name, rows in (("corpus", corpus), ("queries", asked), ("targets", targets)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_data(tmp_path / "data")
    (tmp_path / "e.toml").write_text(EXPERIMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "WRITTEN_FROM", 0)
    return tmp_path


def play(out: str, *settings: str) -> tuple[bytes, Any]:
    result = ragassay.run(load_experiment(Path("e.toml"), settings), out=Path(out))
    return (Path(out) / "summary.json").read_bytes(), result


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_packing_damage_and_distance_change_no_result(
    world: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = play("plain")
    packing = (f"run.compression={compression}", "run.segment_mib=0.004")
    packed, first = play("packed", *packing)
    assert packed == plain
    folder = RunFolder(world / "packed")
    parts = segments.parts_of(folder.path, "trials")
    assert len(parts) > 2
    assert not (folder.path / "trials.jsonl").exists() or parts[-1].number == 0
    keys = list(folder.trials())
    assert first.trials_run == len(keys) == 4 * QUESTIONS

    # The last segment ends early, and so does what was being written; the index is gone.
    newest = [part for part in parts if part.number][-1]
    data = newest.path.read_bytes()
    growing = folder.path / "trials.jsonl"
    growing.unlink(missing_ok=True)
    newest.path.write_bytes(data[: len(data) * 2 // 3])
    shutil.rmtree(folder.path / ".index")
    kept = list(folder.trials())
    assert kept == keys[: len(kept)]
    assert len(kept) < len(keys)
    growing.write_bytes(b'{"at":"')
    again, second = play("packed", *packing)
    assert again == plain
    assert (second.trials_run, second.trials_reused) == (len(keys) - len(kept), len(kept))

    # Reading again runs nothing, also where the index says too much or cannot be written.
    shutil.copytree(folder.path / ".index", world / "older")
    shutil.rmtree(folder.path / ".index")
    (folder.path / ".index").write_text("in the way")
    assert play("packed", *packing)[1].trials_run == 0
    (folder.path / ".index").unlink()

    cli = CliRunner()
    assert cli.invoke(app, ["report", "packed"]).exit_code == 0
    assert (folder.path / "summary.json").read_bytes() == plain
    shown = cli.invoke(app, ["trial", "packed", keys[0][:12]])
    assert json.loads(shown.stdout)["trial"]["key"] == keys[0]
    assert {each["scorer"] for each in json.loads(shown.stdout)["scores"]}

    fsspec = pytest.importorskip("fsspec")
    bucket = fsspec.filesystem("memory")
    bucket.store.clear()
    for file in folder.path.iterdir():
        if file.is_file():
            bucket.pipe_file(f"/runs/packed/{file.name}", file.read_bytes())
    stored = {name: bytes(file.getvalue()) for name, file in bucket.store.items()}
    refused = cli.invoke(app, ["report", "memory://runs/packed"])
    assert "say with --out FOLDER where to write" in str(refused.exception)
    far = cli.invoke(app, ["report", "memory://runs/packed", "--out", "far"])
    assert far.exit_code == 0, far.output
    assert (world / "far" / "summary.json").read_bytes() == plain
    assert (world / "far" / "report.html").read_bytes() == (
        folder.path / "report.html"
    ).read_bytes()
    assert {name: bytes(file.getvalue()) for name, file in bucket.store.items()} == stored
    arguments = ["export", "memory://runs/packed", "--out", "answers"]
    assert cli.invoke(app, arguments).exit_code == 0
    assert cli.invoke(app, ["trial", "memory://runs/packed", keys[0]]).exit_code == 0
    _elsewhere(cli, world)


def _elsewhere(cli: CliRunner, world: Path) -> None:
    """The other commands that only read give for a URL what they give for the folder."""
    url = "simplecache::memory://runs/packed"
    gate = ["--rule", "introduced <= 100%", "--json"]
    near = json.loads(cli.invoke(app, ["gate", "packed", *gate, "--baseline", "packed"]).stdout)
    far = json.loads(cli.invoke(app, ["gate", url, *gate, "--baseline", url]).stdout)
    assert (far.pop("run"), far.pop("baseline")) == (url, url)
    assert (near.pop("run"), near.pop("baseline")) == ("packed", "packed")
    assert near == far
    refused = cli.invoke(app, ["gate", url, *gate, "--report"])
    assert "is only read: leave out --report" in str(refused.exception)

    for run, name in (("packed", "a"), (url, "b")):
        sampled = cli.invoke(app, ["audit", "sample", run, "--out", f"{name}/p", "--size", "5"])
        assert sampled.exit_code == 0, sampled.output
    packets = [
        {file.name: file.read_bytes() for file in (world / name / "p").iterdir() if file.is_file()}
        for name in "ab"
    ]
    assert packets[0] == packets[1]
    refused = cli.invoke(app, ["audit", "apply", "a/p", url])
    assert f"{url} is only read" in str(refused.exception)
    agreed = cli.invoke(app, ["audit", "agree", "a/p", "--run", url])
    assert "nobody has labeled" in str(agreed.exception)

    planned = cli.invoke(app, ["plan", "e.toml", "--like", url])
    assert planned.exit_code == 0, planned.output
    assert planned.stdout == cli.invoke(app, ["plan", "e.toml", "--like", "packed"]).stdout
