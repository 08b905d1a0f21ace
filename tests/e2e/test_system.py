"""A system under test as its owners run it: matched answers, faults, kills at any moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

World = Any  # the fixture of conftest.py
HERE = Path(__file__).parent
EXPERIMENT = """
protocol = "system"
name = "mine"
budgets = [1, 3]
[dataset]
plugin = "beir"
path = "data"
group_size = 5
[[attack]]
plugin = "poisonedrag"
[[system]]
plugin = "disk_system.py:DiskSystem"
label = "plain"
store = "store"
[[system]]
plugin = "disk_system.py:DiskSystem"
label = "guarded"
store = "store"
guard = true
[statistics]
draws = 200
"""
QUESTIONS, SYSTEMS = 15, 2
TRIALS = QUESTIONS * SYSTEMS * 3


@pytest.fixture
def systems(world: World) -> World:
    """The small world with its passages in a store of their own."""
    shutil.copy(HERE / "disk_system.py", world.folder)
    (world.folder / "mine.toml").write_text(EXPERIMENT, encoding="utf-8")
    store = world.folder / "store"
    store.mkdir()
    for line in (world.folder / "data" / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        body = {"text": row["text"], "marked": False}
        (store / f"{row['_id']}.json").write_text(json.dumps(body), encoding="utf-8")
    return world


def contents(world: World) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (world.folder / "store").glob("*.json")}


def cell(world: World, defense: str, budget: int) -> dict[str, Any]:
    return next(
        each for each in world.summary()["cells"]
        if (each["defense"], each["budget"], each["scorer"]) == (defense, budget, "tokens")
    )  # fmt: skip


def test_two_settings_of_a_system_are_compared_as_constructed(systems: World) -> None:
    before = contents(systems)
    done = systems.run("system", "run", "mine.toml", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert contents(systems) == before
    summary = systems.summary()
    assert summary["protocol"] == "system/1"
    assert summary["trials"] == {"planned": TRIALS, "done": TRIALS, "failed": 0, "missing": 0}
    guarded = cell(systems, "guarded", 3)
    assert {name: each["count"] for name, each in guarded["rates"].items()} == {
        "c0": 0, "c1": 0, "p0": 15, "p1": 0
    }  # fmt: skip
    assert guarded["effects"]["P"]["count"] == guarded["effects"]["N"]["count"] == 15
    retrieved = guarded["context"]["p0"]["retrieved"]
    assert (retrieved["own"], retrieved["passages"]) == (3, 4)
    assert guarded["context"]["p1"]["retrieved"]["own"] == 0
    assert guarded["context"]["c0"]["support_retrieved"]["contexts_with"] == 1
    assert guarded["cost"]["p1"] == {
        "model_calls": 1, "input_tokens": 0, "output_tokens": 0, "encoded_texts": 0,
        "scored_texts": 0,
    }  # fmt: skip
    page = (systems.folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "Calls, poisoned (x undefended)" in page
    assert "1.0 (1.0x)" in page
    assert "Input tokens" not in page  # which nobody counted
    gate = systems.run("gate", "run", "--rule", "net_reduction >= 20pp")
    assert gate.returncode in (0, 2), gate.stderr


def kill_runs(systems: World, file: str, kills: int, seed: int, **env: str) -> dict[str, Any]:
    told = subprocess.run(
        [sys.executable, str(HERE / "kill_runs.py"), file, str(kills), str(seed)],
        cwd=systems.folder, env={**os.environ, **systems.env, **env}, capture_output=True,
        text=True, check=False, timeout=300, encoding="utf-8",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


def test_after_any_of_50_kills_cleaning_leaves_the_store_byte_for_byte(systems: World) -> None:
    text = EXPERIMENT.replace("budgets = [1, 3]", "budgets = [3]")
    text = text[: text.rindex("[[system]]")] + "[statistics]\ndraws = 200\n"  # one system
    text = text.replace("group_size = 5", "group_size = 3\nlimit = 6")
    text += '[scoring]\nrules = ["tokens"]\n'
    for path in (systems.folder / "store").glob("d*-[23].json"):
        path.unlink()  # a small store, for speed
    (systems.folder / "mine.toml").write_text(text, encoding="utf-8")
    told = kill_runs(systems, "mine.toml", 50, 7, DISK_WRITE_DELAY="0.002", DISK_ASK_DELAY="0.002")
    assert told["open"] == 50
    assert told["difference"] == ""
    assert told["left"] >= 25  # most kills did leave poison behind


def test_a_killed_run_must_be_cleaned_up_and_then_goes_on_to_the_same_result(
    systems: World,
) -> None:
    systems.run("system", "run", "mine.toml", "--out", "whole")
    before = contents(systems)
    process = systems.start("system", "run", "mine.toml", "--out", "run", DISK_ASK_DELAY="0.2")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and contents(systems) == before:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert contents(systems) != before
    refused = systems.run("system", "run", "mine.toml", "--out", "run")
    assert refused.returncode == 4
    assert "an earlier run left up to" in refused.stderr
    other = systems.run("system", "run", "mine.toml", "--out", "other")
    assert other.returncode == 4
    assert "marked poison documents" in other.stderr
    cleaned = systems.run("system", "clean", "mine.toml", "--out", "run")
    assert cleaned.returncode == 0, cleaned.stderr
    assert "1 unfinished injections" in cleaned.stdout
    assert contents(systems) == before
    again = systems.run("system", "run", "mine.toml", "--out", "run")
    assert again.returncode == 0, again.stderr
    whole = (systems.folder / "whole" / "summary.json").read_bytes()
    assert (systems.folder / "run" / "summary.json").read_bytes() == whole


def test_ctrl_c_takes_the_poison_out(systems: World) -> None:
    before = contents(systems)
    process = systems.start("system", "run", "mine.toml", "--out", "run", DISK_ASK_DELAY="0.2")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and contents(systems) == before:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    assert contents(systems) == before


def test_a_system_that_is_not_local_needs_the_flag(systems: World) -> None:
    source = (systems.folder / "disk_system.py").read_text(encoding="utf-8")
    (systems.folder / "disk_system.py").write_text(source.replace("local = True", "local = False"))
    refused = systems.run("system", "run", "mine.toml", "--out", "run")
    assert refused.returncode == 2
    assert "--allow-remote" in refused.stderr
    assert not (systems.folder / "run" / "trials.jsonl").exists()


def test_a_lost_journal_is_made_up_for_by_the_mark(systems: World) -> None:
    before = contents(systems)
    body = {"text": "left by another run", "marked": True}
    (systems.folder / "store" / "x.json").write_text(json.dumps(body), encoding="utf-8")
    told = systems.run("system", "clean", "mine.toml", "--out", "run")
    assert told.returncode == 4
    assert "--marked" in told.stderr
    assert systems.run("system", "clean", "mine.toml", "--out", "run", "--marked").returncode == 0
    assert contents(systems) == before


def test_attacks_that_look_inside_are_refused(systems: World) -> None:
    refused = systems.run("plan", "mine.toml", "--set", "attack=['corpuspoison']")
    assert refused.returncode == 2
    assert "play the file" in refused.stderr


def store_experiment(plugin: str, where: str) -> str:
    """The built-in pipeline over a store, with few questions."""
    text = EXPERIMENT[: EXPERIMENT.index("[[system]]")].replace("[1, 3]", "[3]")
    return (
        text.replace("group_size = 5", "group_size = 3\nlimit = 6")
        + f"""
[[system]]
plugin = "{plugin}"
{where}
corpus = true
encoder = "hashing"
generator = "scripted"
[scoring]
rules = ["tokens"]
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "library"), [("chroma", "chromadb"), ("qdrant", "qdrant_client")]
)
def test_after_kills_cleaning_leaves_a_real_store_as_it_was(
    systems: World, plugin: str, library: str
) -> None:
    pytest.importorskip(library)
    text = store_experiment(plugin, 'path = "embedded"')
    (systems.folder / "real.toml").write_text(text, encoding="utf-8")
    told = kill_runs(systems, "real.toml", 5, 7)
    assert (told["open"], told["documents"], told["difference"]) == (5, 60, "")


@pytest.fixture
def chroma_server(tmp_path: Path) -> Iterator[str]:
    """The address of a Chroma server of its own on the loopback interface."""
    pytest.importorskip("chromadb.cli.cli", reason="chromadb without its command line")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    main = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; sys.exit(app())"
    folder = tmp_path / "chroma-server"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", main, "run", "--path", str(folder), "--host", "127.0.0.1",
         "--port", str(port)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
    try:
        while True:
            try:
                with urllib.request.urlopen(f"{url}/api/v2/heartbeat"):
                    break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def test_a_chroma_server_by_its_address_does_what_an_embedded_one_does(
    systems: World, chroma_server: str
) -> None:
    import chromadb

    def everything() -> dict[str, str]:
        """Past our own code: what the server says that it holds."""
        parts = urlsplit(chroma_server)
        client = chromadb.HttpClient(host=parts.hostname, port=parts.port)
        found = client.get_collection("ragassay").get(include=["documents"])
        return dict(zip(found["ids"], found["documents"], strict=True))

    rates = {}
    for name, where in (("url", f'url = "{chroma_server}"'), ("path", 'path = "embedded"')):
        text = store_experiment("chroma", where)
        (systems.folder / f"{name}.toml").write_text(text, encoding="utf-8")
        done = systems.run("system", "run", f"{name}.toml", "--out", name)
        assert done.returncode == 0, done.stdout + done.stderr
        summary = systems.summary(name)
        assert summary["trials"] == {"planned": 12, "done": 12, "failed": 0, "missing": 0}
        rates[name] = [(cell["rates"], cell["context"]) for cell in summary["cells"]]
    assert rates["url"] == rates["path"]
    before = everything()
    assert len(before) == 60
    told = kill_runs(systems, "url.toml", 3, 7)
    assert (told["open"], told["documents"], told["difference"]) == (3, 60, "")
    assert everything() == before
