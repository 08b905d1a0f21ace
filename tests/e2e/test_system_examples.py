"""The example systems, evaluated end to end: a LangChain pipeline and an HTTP service."""

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

import pytest

from ragassay.data.atlas import FOLDER

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "systems"
RAGASSAY = str(Path(sys.executable).with_name("ragassay"))
MODELS = [
    pytest.param(("hashing", "scripted"), id="rules"),
    pytest.param(("minilm", "smollm2"), id="embedded", marks=pytest.mark.slow),
]
FEW = ("--set", "budgets=[1]", "--set", "dataset.limit_per_group=1", "--out", "run")


def corpus() -> list[dict[str, Any]]:
    lines = (FOLDER / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:60]]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RAGASSAY, *arguments], cwd=folder, capture_output=True, text=True, check=False,
        timeout=900, encoding="utf-8",
    )  # fmt: skip


def check(folder: Path, title: str) -> None:
    """All four answers of both questions, and the guard that keeps all poison out."""
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["trials"] == {"planned": 8, "done": 8, "failed": 0, "missing": 0}
    (cell,) = [
        each for each in summary["cells"]
        if each["defense"] == title and each["scorer"] == "tokens"
    ]  # fmt: skip
    assert cell["context"]["p0"]["retrieved"]["own"] == 1
    assert cell["context"]["p1"]["retrieved"]["own"] == 0
    assert cell["context"]["c0"]["retrieved"]["own"] == 0


@pytest.mark.parametrize("models", MODELS)
def test_a_langchain_pipeline_over_chroma(models: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("langchain_chroma", reason="pip install langchain-chroma")
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    options = {"store": "store", "encoder": models[0], "generator": models[1]}
    rows = corpus()
    fill = (
        "import sys, json; sys.path.insert(0, '.'); from pipeline import make; "
        f"rows = json.loads(sys.stdin.read()); store = make(**{options!r})[1]\n"
        "if rows: store.add_texts([r['text'] for r in rows], ids=[r['_id'] for r in rows])\n"
        "print(json.dumps(dict(zip(*[store.get()[k] for k in ('ids', 'documents')]))))"
    )

    def filled(rows: list[dict[str, Any]]) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", fill], cwd=tmp_path, input=json.dumps(rows),
            capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])

    before = filled(rows)
    assert len(before) == 60
    given = [
        f"system.{n}.options={{store='store',encoder='{models[0]}',generator='{models[1]}'{guard}}}"
        for n, guard in enumerate(["", ",guard=true"])
    ]
    done = run(tmp_path, "system", "run", "langchain.toml", *FEW, "--set", given[0],
               "--set", given[1])  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path, "pipeline with guard")
    assert filled([]) == before


class Service:
    """The example service as a process that can be killed and started again."""

    def __init__(self, folder: Path, models: tuple[str, str]) -> None:
        self.folder, self.models = folder, models
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "service.py"), "--store", "store", "--port",
             str(self.port), "--corpus", "corpus.jsonl", "--encoder", self.models[0],
             "--generator", self.models[1]],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=dict(os.environ),
        )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def everything(self, path: str = "/documents") -> Any:
        deadline = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as reply:
                    return json.loads(reply.read())
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    for library in ("qdrant_client", "starlette", "uvicorn"):
        pytest.importorskip(library)
    lines = [json.dumps(row) for row in corpus()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    made = Service(tmp_path, request.param)
    text = (EXAMPLES / "service.toml").read_text(encoding="utf-8")
    (tmp_path / "service.toml").write_text(text.replace("8765", str(made.port)), encoding="utf-8")
    made.start()
    yield made
    made.kill()


@pytest.mark.parametrize("service", MODELS, indirect=True)
def test_a_service_that_is_killed_half_way_and_started_again(
    service: Service, tmp_path: Path
) -> None:
    before = service.everything()
    assert len(before) == 60
    waits = [f"system.{n}.patience_seconds=600.0" for n in (0, 1)]
    command = [
        RAGASSAY,
        "system",
        "run",
        "service.toml",
        *FEW,
        "--set",
        waits[0],
        "--set",
        waits[1],
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    journal = tmp_path / "run" / "ingested.jsonl"
    while process.poll() is None and not journal.exists():
        time.sleep(0.005)
    service.kill()  # while poison is, or is about to be, in its store
    time.sleep(1)
    service.start()
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    check(tmp_path, "service with guard")
    assert service.everything() == before
