"""Runs on two Ray workers end as local ones, byte for byte, also when a worker is killed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ragassay
from ragassay.cluster import ray_workers, remote
from ragassay.errors import Interrupted
from ragassay.retrieval import corpus_matrix

from .conftest import HERE, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra [ray])"
    ),
]
MORTAL = """
name = "world"
budgets = [1, 3]
[dataset]
plugin = "beir"
path = "data"
group_size = 5
[retriever]
encoder = "mortal_parts.py:MortalEncoder"
k = 4
[generator]
plugin = "mortal_parts.py:MortalReader"
[statistics]
draws = 200
[[defense]]
plugin = "keywordagg"
extractor = "simple"
[[defense]]
plugin = "trustrag_filter"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One small cluster for all tests; runs use the connection that they find."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=80_000_000)  # fmt: skip
        yield ray
        ray.shutdown()


@pytest.fixture
def mortal(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The small world with parts that can die, in parts so small that there are many."""
    shutil.copy(HERE / "mortal_parts.py", world.folder)
    world.experiment.write_text(MORTAL, encoding="utf-8")
    monkeypatch.chdir(world.folder)
    monkeypatch.setattr(corpus_matrix, "PART_SIZE", 8)
    monkeypatch.setattr(remote, "LEAST_REQUESTS", 8)
    return world


def run(world: World, out: str, *settings: str, monitor: Any = None) -> dict[str, bytes]:
    """Run with a cache of its own; the summary and the vectors that it leaves."""
    os.environ["RAGASSAY_CACHE"] = str(world.folder / f"cache-{out}")
    experiment = ragassay.load_experiment(world.experiment, settings)
    ragassay.run(experiment, out=world.folder / out, monitor=monitor)
    kept = {p.name: p.read_bytes() for p in (world.folder / f"cache-{out}").rglob("*.npy")}
    assert len(kept) == 1
    return kept | {"summary.json": (world.folder / out / "summary.json").read_bytes()}


@pytest.mark.usefixtures("cluster")
def test_two_workers_leave_the_same_bytes_as_none_and_so_they_do_when_one_is_killed(
    mortal: World, caplog: pytest.LogCaptureFixture
) -> None:
    alone = run(mortal, "alone")
    ray = ("run.executor=ray", "run.ray_workers=2")
    assert run(mortal, "spread", *ray) == alone
    assert not caplog.records

    orders = {"generator.order": mortal.folder / "reader",
              "retriever.encoder_options.order": mortal.folder / "encoder"}  # fmt: skip
    for place in orders.values():
        place.touch()
    settings = [f'{key}="{place}"' for key, place in orders.items()]
    assert run(mortal, "killed", *ray, *settings) == alone
    assert not any(place.exists() for place in orders.values())  # both died
    lost = [r.getMessage() for r in caplog.records if "a worker was lost" in r.getMessage()]
    assert len(lost) == 2
    assert "8 texts for encoder mortal-encoder" in lost[0]
    assert "requests for generator mortal-reader" in lost[1]


def test_a_stopped_run_leaves_no_worker_and_goes_on(
    mortal: World, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(Path(tempfile.gettempdir()).glob("ragassay-worker-*"))
    started = []
    start = ray_workers.RayWorkers.start

    def noted(self: Any) -> Any:
        started.append(start(self))
        return started[-1]

    monkeypatch.setattr(ray_workers.RayWorkers, "start", noted)
    ray = ("run.executor=ray", "run.ray_workers=2")
    seen = []

    def interrupt(record: Any, scores: Any) -> None:
        seen.append(record)
        if len(seen) == 20:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(mortal, "stopped", *ray, monitor=ragassay.Monitor(trial=interrupt))
    assert started
    assert not set(Path(tempfile.gettempdir()).glob("ragassay-worker-*")) - before
    for actor, _ in started:
        with pytest.raises(cluster.exceptions.RayActorError):
            cluster.get(actor.facts.remote(), timeout=30)
    assert run(mortal, "stopped", *ray) == run(mortal, "alone")


def test_sigterm_ends_a_run_on_ray_as_it_ends_a_local_one(world: World, cluster: Any) -> None:
    trials = world.folder / "run" / "trials.jsonl"
    process = world.start(
        "run", "world.toml", "--out", "run", "--set", "run.executor=ray",
        "--set", f"run.ray_address={cluster.get_runtime_context().gcs_address}",
        "--set", "run.ray_workers=1", "--set", "run.workers=2", RULE_READER_DELAY="0.05",
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (trials.exists() and trials.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "finished trials are kept" in output
    assert "Traceback" not in output
    assert trials.stat().st_size


def test_where_no_cluster_answers_one_line_says_what_to_do(world: World) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = world.run("run", "world.toml", "--set", "run.executor=ray",
                     "--set", f"run.ray_address=127.0.0.1:{port}")  # fmt: skip
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
    assert f"no Ray cluster answers at '127.0.0.1:{port}'" in done.stderr
    assert 'run.ray_address = "local"' in done.stderr
    assert not (world.folder / "runs").exists()
    assert Path(world.env["RAGASSAY_CACHE"]).exists() is False
