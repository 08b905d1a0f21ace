"""Judging and scoring again as users do it: the command line, a real server, faults injected."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ragassay
from ragassay.generation.scripted_judge import judge

World = Any  # the fixture of conftest.py: a folder, and a way to run commands in it
JUDGE = f"judge={Path(ragassay.__file__).parent / 'scoring' / 'judge.py'}:Judge"
SCRIPTED = ("--set", "judge.generator=scripted", "--set", "judge.generator_options.script=judge")
PATIENCE = ("--set", "judge.generator_options.retries=0",
            "--set", "judge.generator_options.patience_seconds=0.2")  # fmt: skip


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible server with the scripted judge behind it."""

    daemon_threads = True
    delay = 0.0
    healthy_calls = 10**9

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.bodies: list[Any] = []
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def options(self) -> tuple[str, ...]:
        url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        return ("--set", f"judge.base_url={url}", "--set", "judge.model=small", *PATIENCE)

    def end(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            healthy = len(self.server.bodies) <= self.server.healthy_calls
        time.sleep(self.server.delay)
        reply = {
            "id": "c", "object": "chat.completion", "created": 0, "model": "small",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": judge(body["messages"][-1]["content"])}}],
            "usage": {"prompt_tokens": 700, "completion_tokens": 50, "total_tokens": 750},
        }  # fmt: skip
        data = json.dumps(reply if healthy else {"error": {"message": "overloaded"}}).encode()
        self.send_response(200 if healthy else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first finished run of this module is kept for the other tests."""
    return tmp_path_factory.mktemp("shelf") / "run"


@pytest.fixture
def done(world: World, shelf: Path) -> World:
    """A world whose run is finished; its trials are run once and copied."""
    if shelf.exists():
        shutil.copytree(shelf, world.folder / "run")
        return world
    result = world.run("run", "world.toml", "--out", "run")
    assert result.returncode == 0, result.stderr
    shutil.copytree(world.folder / "run", shelf)
    return world


def cells(world: World, scorer: str, run: str = "run") -> list[dict[str, Any]]:
    """The cells of a scorer without its name and the draws of its intervals."""
    found = [c for c in world.summary(run)["cells"] if c["scorer"] == scorer]
    return [{"place": (c["attack"], c["budget"], c["defense"]), "n": c["n"],
             "counts": {name: e["count"] for name, e in c.get("effects", {}).items()}}
            for c in found]  # fmt: skip


def test_a_judge_that_reads_whole_tokens_agrees_with_the_token_rule(done: World) -> None:
    result = done.run("score", "run", "--scorer", JUDGE, *SCRIPTED, "--headline", "judge")
    assert result.returncode == 0, result.stderr
    summary = done.summary()
    assert {"tokens", "published", "judge"} <= set(summary["scorers"])
    assert summary["headline"] == "judge"
    assert cells(done, "judge") == cells(done, "tokens")
    assert any(cell["counts"].get("P") for cell in cells(done, "judge"))
    assert "135 answers labeled" in " ".join(result.stdout.split())
    assert "judge" in (done.folder / "run" / "report.html").read_text(encoding="utf-8")


def test_a_run_that_was_scored_again_is_still_that_run(done: World) -> None:
    done.run("score", "run", "--scorer", JUDGE, *SCRIPTED)
    before = done.summary()
    again = done.run("run", "world.toml", "--out", "run")
    assert again.returncode == 0, again.stderr
    assert "0 trials run, 135 reused" in " ".join(again.stdout.split())
    assert done.summary() == before
    other = done.run("run", "world.toml", "--out", "run", "--set", "seed=99")
    assert other.returncode == 4
    assert "seed" in other.stderr


def test_an_experiment_can_name_a_judge_and_asks_it_in_bulk_after_the_trials(
    world: World, server: Server
) -> None:
    rule = (
        f"{{plugin = '{JUDGE.partition('=')[2]}', label = 'judge', model = 'small', "
        f"base_url = 'http://127.0.0.1:{server.server_address[1]}/v1', "
        "generator_options = {retries = 0, patience_seconds = 0.2}}"
    )
    arguments = ("run", "world.toml", "--out", "run", "--set", f"scoring.rules=['tokens', {rule}]")
    server.healthy_calls = 5
    failed = world.run(*arguments)
    assert failed.returncode == 5, failed.stderr
    assert "are not labeled, because the model failed" in failed.stderr
    assert world.summary()["trials"] == {"planned": 135, "done": 135, "failed": 0, "missing": 0}
    assert (world.folder / "run" / "report.html").exists()
    asked = len(server.bodies)
    server.healthy_calls = 10**9
    again = world.run(*arguments)
    assert again.returncode == 0, again.stderr
    assert "0 trials run, 135 reused; 0 model calls" in " ".join(again.stdout.split())
    assert cells(world, "judge") == cells(world, "tokens")
    prompts = [body["messages"][-1]["content"] for body in server.bodies[asked:]]
    assert len(prompts) == len(set(prompts)) < 135


def test_the_server_gets_a_strict_schema_and_no_hint_of_method_or_condition(
    done: World, server: Server
) -> None:
    result = done.run("score", "run", "--scorer", JUDGE, *server.options)
    assert result.returncode == 0, result.stderr
    assert server.bodies
    hidden = ("keywordagg", "score_gap", "poisonedrag", "poison", "attack", "defense", 'q3"')
    for body in server.bodies:
        assert body["response_format"]["json_schema"]["strict"] is True
        assert body["temperature"] == 0
        text = "\n".join(message["content"] for message in body["messages"])
        assert not [word for word in hidden if word in text]


def test_a_server_that_dies_ends_with_code_5_and_the_same_command_goes_on(
    done: World, server: Server
) -> None:
    server.healthy_calls = 7
    command = ("score", "run", "--scorer", JUDGE, *server.options, "--workers", "1")
    failed = done.run(*command)
    assert failed.returncode == 5, failed.stderr
    assert "the same command goes on from there" in failed.stderr
    assert "judge" in done.summary()["scorers"]
    assert any(cell["dropped"]["not_scored"] for cell in done.summary()["cells"]
               if cell["scorer"] == "judge")  # fmt: skip
    server.healthy_calls, asked = 10**9, len(server.bodies)
    finished = done.run(*command)
    assert finished.returncode == 0, finished.stderr
    assert cells(done, "judge") == cells(done, "tokens")
    good = [body["messages"][-1]["content"] for body in server.bodies[:7]]
    later = [body["messages"][-1]["content"] for body in server.bodies[asked:]]
    assert not set(good) & set(later)
    notes = json.loads((done.folder / "run" / "provenance" / "scoring.json").read_text())
    assert notes["scorings"][0]["unanswered"] > 0
    assert notes["scorings"][1]["unanswered"] == 0


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_judging_is_finished_by_the_same_command(
    done: World, server: Server, stop: signal.Signals
) -> None:
    server.delay = 0.1
    command = ("score", "run", "--scorer", JUDGE, *server.options, "--workers", "1")
    process = done.start(*command)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(server.bodies) < 5:
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it could be stopped"
    process.send_signal(stop)
    process.communicate()
    assert process.returncode == (130 if stop == signal.SIGINT else -9)
    server.delay = 0.0
    finished = done.run(*command)
    assert finished.returncode == 0, finished.stderr
    assert cells(done, "judge") == cells(done, "tokens")
    prompts = [body["messages"][-1]["content"] for body in server.bodies]
    assert len(prompts) - len(set(prompts)) <= 1  # at most the one in flight was lost


def test_the_plan_names_calls_tokens_and_money_and_asks_nothing(
    done: World, server: Server
) -> None:
    before = sorted(path.name for path in (done.folder / "run").iterdir())
    result = done.run(
        "score", "run", "--scorer", JUDGE, *server.options, "--plan",
        "--price-in", "0.15", "--price-out", "0.6",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "135 answers without its label" in result.stdout
    assert "estimated: one for 4 characters" in result.stdout
    assert "cost:" in result.stdout
    assert server.bodies == []
    assert sorted(path.name for path in (done.folder / "run").iterdir()) == before


def test_answers_leave_this_machine_only_on_an_explicit_yes(done: World) -> None:
    away = ("score", "run", "--scorer", JUDGE, *PATIENCE, "--set", "judge.model=small",
            "--set", "judge.base_url=http://judge.invalid/v1")  # fmt: skip
    result = done.run(*away)
    assert result.returncode == 2
    assert "would send questions and answers to judge.invalid; add --yes" in result.stderr
    assert "input tokens" in result.stdout
    assert "judge" not in done.summary()["scorers"]
    agreed = done.run(*away, "--yes")
    assert agreed.returncode == 5, agreed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scorer", "tokenz"), "did you mean 'tokens'"),
        (("--scorer", "tokens", "--headline", "nobody"), "is no scorer of this folder"),
        (("--scorer", "tokens", "--set", "judge.x=1"), "expected SCORER.OPTION=VALUE"),
        (("--scorer", "tokens", "--price-in", "1"), "give both --price-in and --price-out"),
    ],
)
def test_a_wrong_command_is_one_line_and_code_2(
    done: World, arguments: tuple[str, ...], message: str
) -> None:
    result = done.run("score", "run", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
