"""The split-knowledge probe as its users build and run it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it

BRIDGES = ("Marlow", "Dunmere", "Ostrell", "Pellam", "Quorn", "Rathby")
PEOPLE = ("Ada Kerrin", "Bo Lind", "Cy Morrow", "Dee Nash", "Eli Orde", "Fay Pirn")
TOWNS = ("Tolvane", "Urswick", "Velden", "Wyrley", "Xanten", "Yarrowby")
TO_FILE = ("probe", "probe.toml", "--out", "data/candidates.jsonl")
OTHER = "--set=helper.mode=single"
FROM_FILE = ("run", "probe.toml", "--out", "run", "--set", "dataset.targets=candidates.jsonl")

EXPERIMENT = """
name = "probe"
budgets = [1]
[dataset]
plugin = "beir"
path = "data"
group_size = 1
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 4096 }
k = 5
[generator]
plugin = "two_hops.py:TwoHops"
name = "victim"
[helper]
plugin = "two_hops.py:TwoHops"
name = "reader"
[[attack]]
plugin = "released"
[statistics]
draws = 500
"""

READER = '''
"""A reader that follows two hops: which person built the bridge, and where was she born."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ragassay.types import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHops:
    """Name every town in which the architect was born; "single" asks for no architect."""

    name: str
    mode: str = "compose"
    gathers: bool = False

    @property
    def identity(self) -> str:
        return f"two-hops:{self.name}:{self.mode}"

    def generate(self, requests):
        return [self._one("\\n".join(m.content for m in r.messages)) for r in requests]

    def _one(self, prompt):
        if os.environ.get("PROMPTS"):
            with Path(os.environ["PROMPTS"]).open("a", encoding="utf-8") as file:
                file.write(prompt + "\\x00")
        time.sleep(float(os.environ.get("DELAY", "0")))
        contexts, question = prompt.rsplit("Query:", 1)
        bridge = re.search(r"of the (\\w+) Bridge", question)
        if bridge is None:
            return Generation(text="I don't know")
        architects = re.findall(rf"{bridge[1]} Bridge was designed by (\\w+ \\w+)", contexts)
        if self.mode == "single":
            architects = [r"\\w+ \\w+"]
        towns = [t for a in architects for t in re.findall(rf"{a} was born in (\\w+)", contexts)]
        return Generation(text=" or ".join(sorted(set(towns))) or "I don't know")
'''


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def hops(world: World) -> World:
    """The world of conftest.py with other data: six two-hop questions, and one of yes or no."""
    data = world.folder / "data"
    (data / "targets.jsonl").unlink()
    corpus, queries, qrels = [], [], []
    for n, (bridge, person, town) in enumerate(zip(BRIDGES, PEOPLE, TOWNS, strict=True)):
        corpus += [
            {"_id": f"a{n}", "title": f"{bridge} Bridge",
             "text": f"The {bridge} Bridge was designed by {person} in stone."},
            {"_id": f"b{n}", "title": person,
             "text": f"The architect {person} was born in {town} and drew bridges."},
            {"_id": f"c{n}", "title": bridge, "text": f"Goats graze near {bridge} in spring."},
        ]  # fmt: skip
        queries.append(
            {"_id": f"q{n}", "text": f"Where was the architect of the {bridge} Bridge born?",
             "metadata": {"references": [town]}}
        )  # fmt: skip
        qrels += [f"q{n}\ta{n}\t1", f"q{n}\tb{n}\t1"]
    queries.append(
        {"_id": "q6", "text": "Is the Marlow Bridge by Ada Kerrin?",
         "metadata": {"references": ["yes"]}}
    )  # fmt: skip
    write(data / "corpus.jsonl", corpus)
    write(data / "queries.jsonl", queries)
    qrels += ["q6\ta0\t1", "q6\tb0\t1"]
    (data / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    (world.folder / "two_hops.py").write_text(READER, encoding="utf-8")
    (world.folder / "probe.toml").write_text(EXPERIMENT, encoding="utf-8")
    return world


def test_a_probe_is_built_and_run_and_b_alone_is_injected(hops: World, tmp_path: Path) -> None:
    built = hops.run(*TO_FILE)
    assert built.returncode == 0, built.stderr
    table = " ".join(built.stdout.replace("│", " ").split())
    for row in ("questions 7", "with two supporting passages 7", "the answer is yes or no 1",
                "usable 6", "accepted 6"):  # fmt: skip
        assert row in table
    written = {row["query_id"]: row for row in lines(hops.folder / "data" / "candidates.jsonl")}
    assert set(written) == {f"q{n}" for n in range(6)}
    log = tmp_path / "prompts"
    done = hops.run(*FROM_FILE, PROMPTS=str(log))
    assert done.returncode == 0, done.stderr
    poison = [line["body"] for line in lines(hops.folder / "run" / "poison.jsonl")]
    assert {p["query_id"]: [each["text"] for each in p["passages"]] for p in poison} == {
        key: row["texts"] for key, row in written.items()
    }
    assert {p["query_id"]: p["wanted"] for p in poison} == {
        key: row["wanted"] for key, row in written.items()
    }
    trials = [line["body"] for line in lines(hops.folder / "run" / "trials.jsonl")]
    poisoned = [trial for trial in trials if trial["spec"]["budget"] == 1]
    assert len(poisoned) == 6
    for trial in poisoned:
        origins = [entry["origin"] for entry in trial["context"]]
        assert sorted(origins) == ["corpus"] * 4 + ["own"]
    changed = {row["texts"][0] for row in written.values()}
    for prompt in log.read_text(encoding="utf-8").split("\x00")[:-1]:
        assert sum(text in prompt for text in changed) <= 1
    cell = next(c for c in hops.summary()["cells"] if c["scorer"] == "tokens")
    assert cell["rates"]["c0"]["count"] == 0
    assert cell["rates"]["p0"]["count"] == cell["rates"]["p0"]["n"] == 6


def test_the_reader_is_asked_four_times_a_candidate_and_never_again(
    hops: World, tmp_path: Path
) -> None:
    log = tmp_path / "prompts"
    first = hops.run(*TO_FILE, PROMPTS=str(log))
    assert first.returncode == 0, first.stderr
    assert log.read_text(encoding="utf-8").count("\x00") == 4 * 6
    before = (hops.folder / "data" / "candidates.jsonl").read_bytes()
    again = hops.run(*TO_FILE, "--force", PROMPTS=str(log))
    assert again.returncode == 0, again.stderr
    assert log.read_text(encoding="utf-8").count("\x00") == 4 * 6
    assert (hops.folder / "data" / "candidates.jsonl").read_bytes() == before


def test_where_b_suffices_nothing_is_accepted_and_the_exit_code_says_so(hops: World) -> None:
    refused = hops.run(*TO_FILE, OTHER)
    assert refused.returncode == 6, refused.stderr
    assert "from B alone" in refused.stdout
    assert "no candidate was accepted" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (hops.folder / "data" / "candidates.jsonl").exists()
    everything = hops.run(*TO_FILE, OTHER, "--all")
    assert everything.returncode == 0, everything.stderr
    written = lines(hops.folder / "data" / "candidates.jsonl")
    assert [row["accepted"] for row in written] == [False] * 6
    assert {row["reason"] for row in written} == {"the reader gives the target from B alone"}
    done = hops.run(*FROM_FILE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--set=helper.name=victim",), 2, "are the same model"),
        (("--set=dataset.path=nowhere",), 3, "no such folder"),
        (("--set=helper.plugin=smollm3",), 2, "unknown generator"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    hops: World, arguments: tuple[str, ...], code: int, message: str
) -> None:
    refused = hops.run(*TO_FILE, *arguments)
    assert refused.returncode == code
    assert message in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (hops.folder / "data" / "candidates.jsonl").exists()


def test_a_stopped_probe_says_so_and_writes_nothing(hops: World, tmp_path: Path) -> None:
    log = tmp_path / "prompts"
    process = hops.start(*TO_FILE, PROMPTS=str(log), DELAY="0.1")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not log.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "answers that arrived are in the cache" in output
    assert "Traceback" not in output
    assert not list((hops.folder / "data").glob("*candidates*"))


def test_a_file_is_not_replaced_without_being_told(hops: World) -> None:
    path = hops.folder / "data" / "candidates.jsonl"
    path.write_text("mine\n", encoding="utf-8")
    refused = hops.run(*TO_FILE)
    assert refused.returncode == 2
    assert "is there already; --force replaces it" in refused.stderr
    assert path.read_text(encoding="utf-8") == "mine\n"
